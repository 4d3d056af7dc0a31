"""Every attack succeeds on a leaky toy, stays at chance where nothing leaks, and touches nothing but its view."""

import dataclasses

import pytest
import torch

from attacks.base import Attack
from attacks.estimates import EstimateError
from attacks.interactions.estimates import InteractionEstimate
from attacks.recommendation.imia import IMIA
from attacks.recommendation.item_deltas import Direction, RowNorm
from attacks.recommendation.matched_filter import MatchedFilter
from attacks.recommendation.raifle import Raifle
from attacks.scoring import auc_per_victim, f1_per_victim
from protocol.errors import ViewError
from protocol.seeding import generator_for
from protocol.threat_model import ThreatModel
from protocol.view import ITEM_EMBEDDING, RoundView
from tests.toys import each, leaky_view

ON_THE_UPDATE: list[Attack] = [
    Direction(),
    RowNorm(),
    MatchedFilter(shadows=4),
    IMIA(confirmed=0.1),
    Raifle(max_iter=100),
]


def scores_of(attack: Attack, view: RoundView) -> torch.Tensor:
    estimate = attack(view, generator=generator_for(0, "attack"))
    assert isinstance(estimate, InteractionEstimate)
    return estimate.scores


def mean_auc(scores: torch.Tensor, labels: torch.Tensor, view: RoundView) -> float:
    return float(auc_per_victim(scores, labels, view.served_mask).nanmean())


@pytest.mark.parametrize("attack", each(ON_THE_UPDATE))
def test_succeeds_where_labels_leak(attack: Attack) -> None:
    view, labels = leaky_view(victims=4 if attack.name == "raifle" else 12)
    scores = scores_of(attack, view)
    assert mean_auc(scores, labels, view) > (0.75 if attack.name == "imia" else 0.95)


@pytest.mark.parametrize("attack", each(ON_THE_UPDATE))
def test_is_at_chance_where_clients_trained_on_other_labels(attack: Attack) -> None:
    """Everything is as it was, the items served and the noise too, but the labels were shuffled before training."""
    view, labels = leaky_view(victims=4 if attack.name == "raifle" else 12)
    keys = torch.rand(labels.shape, generator=generator_for(1, "shuffle")).masked_fill(~view.served_mask, 2)
    shuffled, _ = leaky_view(victims=view.victims, order=keys.argsort(1))
    assert torch.equal(view.served, shuffled.served)  # type: ignore[arg-type]
    assert abs(mean_auc(scores_of(attack, shuffled), labels, view) - 0.5) < 0.12


@pytest.mark.parametrize("attack", each(ON_THE_UPDATE))
def test_is_at_chance_on_an_update_that_is_noise(attack: Attack) -> None:
    view, labels = leaky_view(victims=4 if attack.name == "raifle" else 24)
    rows = view.deltas[ITEM_EMBEDDING]
    noise = torch.randn(rows.shape, generator=generator_for(0, "noise")) * rows.std() * view.served_mask[..., None]
    scores = scores_of(attack, dataclasses.replace(view, deltas={ITEM_EMBEDDING: noise}))
    assert abs(mean_auc(scores, labels, view) - 0.5) < 0.08


@pytest.mark.parametrize("attack", [Direction(), RowNorm(), MatchedFilter(shadows=4)], ids=lambda attack: attack.name)
def test_decides_without_the_truth(attack: Attack) -> None:
    view, labels = leaky_view()
    estimate = attack(view, generator=generator_for(0, "attack"))
    assert isinstance(estimate, InteractionEstimate)
    assert float(f1_per_victim(estimate.decisions, labels, view.served_mask).nanmean()) > 0.9


@pytest.mark.parametrize("attack", [Direction(), RowNorm()], ids=lambda attack: attack.name)
def test_a_victim_alone_scores_as_in_company(attack: Attack) -> None:
    view, _ = leaky_view()
    together = attack(view, generator=generator_for(0, "attack"))
    alone = view.select(torch.arange(1))
    apart = attack(alone, generator=generator_for(0, "attack"))
    assert isinstance(together, InteractionEstimate)
    assert isinstance(apart, InteractionEstimate)
    torch.testing.assert_close(apart.scores[0], together.scores[0])


@pytest.mark.parametrize("attack", each(ON_THE_UPDATE[:4]))
def test_leaves_its_view_as_it_was(attack: Attack) -> None:
    view, _ = leaky_view()
    before = {name: value.clone() for name, value in {**view.deltas, **view.model}.items()}
    attack(view, generator=generator_for(0, "attack"))
    for name, value in {**view.deltas, **view.model}.items():
        assert torch.equal(value, before[name])


def test_an_update_with_nan_is_refused() -> None:
    view, _ = leaky_view()
    rows = view.deltas[ITEM_EMBEDDING].clone()
    rows[0, 0, 0] = torch.nan
    with pytest.raises(ViewError, match="NaN"):
        Direction()(dataclasses.replace(view, deltas={ITEM_EMBEDDING: rows}), generator=generator_for(0, "attack"))


def test_an_estimate_of_another_shape_is_refused() -> None:
    class Wrong(Attack):
        name, family, estimates = "wrong", "test", InteractionEstimate
        threat_model = ThreatModel(sees="nothing", knows="nothing", needs=("served",))

        def run(self, view: RoundView, *, generator: torch.Generator) -> InteractionEstimate:
            return InteractionEstimate(scores=torch.zeros(1, 2), decisions=torch.zeros(1, 2, dtype=torch.bool))

    with pytest.raises(EstimateError, match="shape"):
        Wrong()(leaky_view()[0], generator=generator_for(0, "attack"))


@pytest.mark.parametrize(
    ("kind", "argument"), [(MatchedFilter, "shadows"), (IMIA, "confirmed"), (IMIA, "selection"), (Raifle, "max_iter")]
)
def test_impossible_values_are_refused(kind: type[Attack], argument: str) -> None:
    with pytest.raises(ValueError, match=argument):
        kind(**{argument: 0})
