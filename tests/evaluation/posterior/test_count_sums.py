"""Sums over counts of a total: equal to sums over all of them, also where weights differ by many magnitudes."""

import itertools
import math

import numpy as np
import pytest

from fedleak.evaluation.posterior.count_sums import log_total, marginals

TOTALS = np.array([4, 6, 0])


def weights(spread: float) -> np.ndarray:
    """``(3, 3, 7)`` logarithms of weights, minus infinity above each row's total."""
    logs = spread * np.random.default_rng(0).normal(size=(3, 3, 7))
    return np.where(np.arange(7) <= TOTALS[:, None, None], logs, -np.inf)


def by_listing(logs: np.ndarray, total: int) -> dict[tuple[int, ...], float]:
    vectors = (n for n in itertools.product(range(total + 1), repeat=len(logs)) if sum(n) == total)
    return {n: math.exp(sum(logs[k, count] for k, count in enumerate(n))) for n in vectors}


@pytest.mark.parametrize("spread", [1.0, 10.0])
def test_sum_and_marginals_are_those_of_a_list_of_all_counts(spread: float) -> None:
    logs = weights(spread)
    sums, chances = log_total(logs, TOTALS), marginals(logs, TOTALS)
    for row, total in enumerate(TOTALS.tolist()):
        listed = by_listing(logs[row], total)
        assert sums[row] == pytest.approx(math.log(sum(listed.values())), abs=1e-9)
        expected = np.zeros((3, 7))
        for counts, weight in listed.items():
            for number, count in enumerate(counts):
                expected[number, count] += weight / sum(listed.values())
        np.testing.assert_allclose(chances[row], expected, atol=1e-12)


def test_counts_that_contradict_the_total_have_an_upper_bound() -> None:
    """Weights of one count for each class, whose sum is not the total, beyond double precision."""
    logs = np.full((1, 30, 5), -50.0)
    logs[0, :, 0] = 0.0
    sums = log_total(logs, np.array([4]))
    assert np.isfinite(sums).all()
    assert sums[0] >= math.log(math.comb(30, 1)) - 50
    np.testing.assert_allclose(marginals(logs, np.array([4])).sum(2), 1.0)
