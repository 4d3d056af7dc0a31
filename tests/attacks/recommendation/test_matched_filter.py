"""The matched filter adds up what several rounds say, and only of the same items."""

import dataclasses

import pytest
import torch

from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.attacks.recommendation.matched_filter import MatchedFilter
from fedleak.core.errors import ViewError
from fedleak.core.release import Release
from fedleak.core.scoring import auc_per_victim
from fedleak.core.seeding import generator_for
from fedleak.core.view import ITEM_EMBEDDING, RoundView
from tests.attacks.runs import run
from tests.toys import leaky_view, with_shuffled_labels

SIGMA = 0.04


def noised(view: RoundView, number: int) -> RoundView:
    """The view with fresh noise of a known scale, in a round of its own."""
    rows = view.deltas[ITEM_EMBEDDING]
    noise = torch.randn(rows.shape, generator=generator_for(number, "noise")) * SIGMA * view.served_mask[..., None]
    release = Release(noise_scale=SIGMA, parameters=(ITEM_EMBEDDING,))
    return dataclasses.replace(view, round=number, deltas={ITEM_EMBEDDING: rows + noise}, releases=(release,))


def four_rounds(view: RoundView) -> RoundView:
    return dataclasses.replace(noised(view, 3), earlier=tuple(noised(view, number) for number in range(3)))


def aucs(view: RoundView, labels: torch.Tensor) -> dict[str, float]:
    found = {}
    for rounds in ("last", "all"):
        scores = run(MatchedFilter(rounds=rounds, shadows=2), view, InteractionEstimate).scores
        found[rounds] = float(auc_per_victim(scores, labels, view.served_mask).mean())
    return found


@pytest.mark.integration
def test_several_rounds_average_the_noise_and_say_nothing_of_other_labels() -> None:
    view, labels = leaky_view(victims=6)
    found = aucs(four_rounds(view), labels)
    assert 0.6 < found["last"] < 0.95
    assert found["all"] > found["last"] + 0.04
    others = with_shuffled_labels(view, labels)
    assert abs(aucs(four_rounds(others), labels)["all"] - 0.5) < 0.1


def test_rounds_with_other_items_are_refused() -> None:
    view, _ = leaky_view(victims=2)
    other = dataclasses.replace(view, served=view.served_items.flip(0))
    with pytest.raises(ViewError, match="items"):
        run(MatchedFilter(rounds="all"), dataclasses.replace(view, earlier=(other,)), InteractionEstimate)
