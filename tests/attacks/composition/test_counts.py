"""Scores of counts by hand, and the nearest whole numbers against all of them."""

import itertools

import pytest
import torch

from fedleak.attacks.composition.counts import (
    CountEstimate,
    count_estimate,
    nearest_counts,
    right_when_rounded,
    shown_deviation,
)
from fedleak.core.estimates import EstimateError
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from tests.attacks.runs import plain_view


def seen(victims: int, size: int) -> RoundView:
    return plain_view(victims, example_counts=torch.full((victims,), size))


def test_scores_by_hand() -> None:
    found = count_estimate(torch.tensor([[3, 1, 0], [0, 0, 0]]), torch.full((2, 3), 0.5))
    scores = found.score(seen(2, 4), {"class_counts": torch.tensor([[2, 1, 1], [4, 0, 0]])})
    assert scores.metrics["exact-classes"].tolist() == pytest.approx([1 / 3, 2 / 3])
    assert scores.metrics["instance-recall"].tolist() == [3 / 4, 0]
    assert scores.metrics["class-existence"].tolist() == pytest.approx([2 / 3, 2 / 3])
    # A standard normal error is below one standard deviation with probability 0.683.
    assert scores.metrics["predicted-exact-classes"].tolist() == pytest.approx([0.6827, 0.6827], abs=1e-4)
    assert float(right_when_rounded(torch.tensor(0.5))) == pytest.approx(0.6827, abs=1e-4)


def test_without_a_prediction_there_is_none() -> None:
    found = count_estimate(torch.tensor([[3, 1]]))
    assert "predicted-exact-classes" not in found.score(seen(1, 4), {"class_counts": torch.tensor([[3, 1]])}).metrics


def test_intervals_by_hand() -> None:
    counts, deviation = torch.tensor([[3, 1]]), torch.tensor([[0.2, 1.0]])
    whole = count_estimate(counts, deviation)  # 1.96 * 0.2 is no error in whole numbers, 1.96 is one of 2
    assert whole.low.tolist() == [[0.75, 0]]
    assert whole.high.tolist() == [[0.75, 0.75]]
    real = count_estimate(counts, deviation, shares=torch.tensor([[0.7, 0.3]], dtype=torch.float64))
    assert real.low.tolist() == [pytest.approx([0.7 - 0.098, 0])]
    assert real.high.tolist() == [pytest.approx([0.7 + 0.098, 0.3 + 0.49])]


def test_counts_of_another_type_are_a_defect() -> None:
    good = count_estimate(torch.tensor([[3, 1]]))
    bad = CountEstimate(**{**vars(good), "counts": good.counts.double()})
    with pytest.raises(EstimateError, match="int64"):
        bad.check(seen(1, 4))


def test_the_nearest_whole_numbers_are_found() -> None:
    draw = generator_for(0, "nearest")
    size, classes = 7, 4
    every = torch.tensor([c for c in itertools.product(range(size + 1), repeat=classes) if sum(c) == size]).double()
    for _ in range(20):
        root = torch.randn(classes, classes, generator=draw, dtype=torch.float64) * 0.3 + torch.eye(classes)
        precision = root.T @ root
        true = every[torch.randint(len(every), (), generator=draw)]
        solution = true + 0.4 * torch.randn(classes, generator=draw, dtype=torch.float64)
        target = precision @ solution
        value = ((every @ precision) * every).sum(1) - 2 * every @ target
        found = nearest_counts(precision[None], target[None], solution[None], torch.tensor([size]))
        own = found[0].double()
        assert int(found.sum()) == size
        assert float(own @ precision @ own - 2 * own @ target) == pytest.approx(float(value.min()), abs=0.05)


def near_whole(error: float, *, clients: int = 20, classes: int = 10) -> torch.Tensor:
    """Counts with normal errors, of which each client's sum is whole."""
    generator = torch.Generator().manual_seed(0)
    whole = torch.randint(1, 9, (clients, classes), generator=generator).double()
    errors = error * torch.randn(clients, classes, generator=generator, dtype=torch.float64)
    return whole + errors - errors.mean(1, keepdim=True)


@pytest.mark.parametrize("error", [0.01, 0.1, 0.2, 0.3])
def test_a_deviation_that_the_counts_have_is_kept(error: float) -> None:
    predicted = torch.full((20, 10), error).double()
    assert torch.equal(shown_deviation(near_whole(error), predicted), predicted)


def test_counts_farther_from_whole_numbers_show_a_larger_deviation() -> None:
    shown = shown_deviation(near_whole(0.15), torch.full((20, 10), 0.02).double())
    assert float(shown.nanmean()) == pytest.approx(0.15, abs=0.03)


@pytest.mark.parametrize("counts", [near_whole(3.0), near_whole(0.01) / 2, near_whole(0.01) * 1.1])
def test_counts_that_are_not_near_whole_numbers_refute_a_prediction(counts: torch.Tensor) -> None:
    assert bool(shown_deviation(counts, torch.full((20, 10), 0.02).double()).isnan().all())


def test_negative_counts_refute_the_prediction_of_their_client() -> None:
    counts = near_whole(0.01)
    counts[3, 0] -= 20
    shown = shown_deviation(counts, torch.full((20, 10), 0.05).double())
    assert shown.isnan().any(1).nonzero().flatten().tolist() == [3]


def test_counts_that_round_to_another_sum_refute_a_prediction() -> None:
    """Of one example, shares of several classes are near the whole number 0, but then there is no example."""
    shares = torch.full((20, 10), 0.1).double()
    assert bool(shown_deviation(shares, torch.full((20, 10), 0.05).double()).isnan().all())
