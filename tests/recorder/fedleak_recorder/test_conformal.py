"""Thresholds from honest values: the bound holds, and is not far from what it promises."""

import numpy as np
import pytest
import torch

from fedleak_recorder.conformal import conformal_thresholds, fewest_honest_values
from fedleak_recorder.errors import InputError


@pytest.mark.parametrize(("checks", "rate", "count"), [(8, 0.05, 159), (1, 0.05, 19), (9, 0.1, 89), (2, 0.01, 199)])
def test_fewest_values(checks: int, rate: float, count: int) -> None:
    assert fewest_honest_values(checks, rate) == count
    assert checks / (count + 1) <= rate < checks / count
    honest = np.zeros((count, checks))
    assert conformal_thresholds(honest, rate).false_alarms == conformal_thresholds(honest, rate, largest=True)[1]
    with pytest.raises(InputError, match=f"at least {count} honest clients for {checks} checks"):
        conformal_thresholds(honest[1:], rate, unit="clients")


def test_the_lowest_threshold_keeps_its_promise_on_average() -> None:
    draws = np.random.default_rng(0).lognormal(size=(4000, 40))
    rates = [float(row[-1] > conformal_thresholds(row[:-1], 0.05).values[0]) for row in draws]
    assert np.mean(rates) == pytest.approx(0.05, abs=4 * np.sqrt(0.05 * 0.95 / 4000))
    assert conformal_thresholds(torch.arange(19), 0.05).values.tolist() == [18]


def test_the_bound_is_that_of_all_checks_together() -> None:
    honest = torch.randn(2000, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values, bound = conformal_thresholds(honest[:1000], 0.1)
    assert bound == 4 * 25 / 1001
    assert 0.05 < float((honest[1000:] > torch.from_numpy(values)).any(1).double().mean()) < 0.15
    with pytest.raises(InputError, match=r"at least 39 honest rounds for 4 checks at a joint rate of 0.1; found 30"):
        conformal_thresholds(honest[:30], 0.1)


def test_the_largest_value_is_a_rule_of_its_own() -> None:
    """It gives fewer false alarms than allowed, and the bound says how many."""
    honest = np.random.default_rng(1).normal(size=(199, 2))
    lowest, largest = conformal_thresholds(honest, 0.1), conformal_thresholds(honest, 0.1, largest=True)
    assert (largest.values == honest.max(0)).all()
    assert (lowest.values < largest.values).all()
    assert (lowest.false_alarms, largest.false_alarms) == (2 * 10 / 200, 2 / 200)
    beyond = conformal_thresholds(-np.abs(honest), 0.1, largest=True, margin=3).values
    assert beyond == pytest.approx(np.abs(honest).min(0))  # above a negative value, too


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        conformal_thresholds(np.arange(18), 0)
    with pytest.raises(InputError, match="a margin of at least 1"):
        conformal_thresholds(np.arange(19), 0.05, margin=0.5)
    with pytest.raises(InputError, match="for 0 checks"):
        conformal_thresholds(np.zeros((50, 0)), 0.05)
