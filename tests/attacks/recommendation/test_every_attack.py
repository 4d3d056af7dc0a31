"""Every attack succeeds on a leaky toy, stays at chance where nothing leaks, and touches nothing but its view."""

import dataclasses
import functools

import pytest
import torch

from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.attacks.recommendation.imia import IMIA
from fedleak.attacks.recommendation.item_deltas import Direction, RowNorm
from fedleak.attacks.recommendation.matched_filter import MatchedFilter
from fedleak.attacks.recommendation.raifle import Raifle
from fedleak.core.attack import Attack
from fedleak.core.errors import ViewError
from fedleak.core.estimates import EstimateError
from fedleak.core.scoring import auc_per_victim, f1_per_victim
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import ITEM_EMBEDDING, RoundView
from tests.attacks.runs import run
from tests.toys import each, leaky_view, with_shuffled_labels

QUICK: list[Attack] = [Direction(), RowNorm()]
TRAINING: list[Attack] = [MatchedFilter(shadows=4), IMIA(confirmed=0.1), Raifle(max_iter=32)]
ON_THE_UPDATE = [*each(QUICK), *(pytest.param(a, id=a.name, marks=pytest.mark.integration) for a in TRAINING)]
VICTIMS = {"matched-filter": 6, "imia": 6, "raifle": 4}
"""Victims of the attacks that train for each of them; 12 of the others."""
cached_view = functools.cache(leaky_view)


def leaky(attack: Attack) -> tuple[RoundView, torch.Tensor]:
    return cached_view(VICTIMS.get(attack.name, 12))


def with_fewer_steps(attack: Attack) -> Attack:
    """The attack with as much work as shows a leak, where there is none to be found: 8 steps reach an AUC of 0.94."""
    return Raifle(max_iter=8) if attack.name == "raifle" else attack


def mean_auc(attack: Attack, view: RoundView, labels: torch.Tensor) -> float:
    return float(auc_per_victim(run(attack, view, InteractionEstimate).scores, labels, view.served_mask).nanmean())


@pytest.mark.parametrize("attack", ON_THE_UPDATE)
def test_is_at_chance_where_clients_trained_on_other_labels(attack: Attack) -> None:
    """Everything is as it was, the items served and the noise too, but the labels were shuffled before training."""
    view, labels = leaky(attack)
    shuffled = with_shuffled_labels(view, labels)
    assert torch.equal(view.served_items, shuffled.served_items)
    assert abs(mean_auc(with_fewer_steps(attack), shuffled, labels) - 0.5) < 0.12


@pytest.mark.parametrize("attack", ON_THE_UPDATE[:3])
def test_decides_without_the_truth(attack: Attack) -> None:
    view, labels = leaky(attack)
    decisions = run(attack, view, InteractionEstimate).decisions
    assert float(f1_per_victim(decisions, labels, view.served_mask).nanmean()) > 0.9


@pytest.mark.parametrize("attack", each(QUICK))
def test_a_victim_alone_scores_as_in_company(attack: Attack) -> None:
    view, _ = leaky(attack)
    alone, together = (run(attack, one, InteractionEstimate) for one in (view.select(torch.arange(1)), view))
    torch.testing.assert_close(alone.scores[0], together.scores[0])


def test_an_update_with_nan_is_refused() -> None:
    view, _ = leaky(Direction())
    rows = view.deltas[ITEM_EMBEDDING].clone()
    rows[0, 0, 0] = torch.nan
    with pytest.raises(ViewError, match="NaN"):
        run(Direction(), dataclasses.replace(view, deltas={ITEM_EMBEDDING: rows}), InteractionEstimate)


def test_an_estimate_of_another_shape_is_refused() -> None:
    class Wrong(Attack):
        name, family, estimates = "wrong", "test", InteractionEstimate
        threat_model = ThreatModel(sees="nothing", knows="nothing", needs=("served",))

        def run(self, view: RoundView, *, generator: torch.Generator) -> InteractionEstimate:
            return InteractionEstimate(scores=torch.zeros(1, 2), decisions=torch.zeros(1, 2, dtype=torch.bool))

    with pytest.raises(EstimateError, match="shape"):
        run(Wrong(), leaky(Direction())[0], InteractionEstimate)
