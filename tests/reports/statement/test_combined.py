import pytest

from fedleak.evaluation.range import Range
from fedleak.reports.statement.combined import exposure
from fedleak.reports.statement.numbers import Interval


def test_exposure_by_hand() -> None:
    made = exposure(Range(0.5, 0.4, 0.6), Range(0.01, 0.0, 0.02), clients=1000, prior=0.1)
    assert made["true"] == 100
    assert made["exposed"] == Interval(value=50, low=40, high=60)
    assert made["wrong"].value == pytest.approx(9)
    assert made["precision"].value == pytest.approx(50 / 59)
    assert made["precision"].low == pytest.approx(40 / 58)
    assert made["precision"].high == 1
    assert made["lift"].value == pytest.approx(500 / 59)


def test_nobody_named_has_no_precision() -> None:
    made = exposure(Range(0, 0, 0.1), Range(0, 0, 0.1), clients=10, prior=0.5)
    assert (made["precision"], made["lift"]) == (None, None)
