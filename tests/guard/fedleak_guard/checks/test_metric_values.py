"""Metrics: names, kinds, counts and the bits that they carry."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedleak_guard.checks.metric_values import MetricValues, value_bits
from fedleak_guard.policy import read_policy
from tests.guard_toys import message, write_policy

POLICY = "metrics: {names: [loss, 'class.*', n], counts: ['class.*'], max_values: 6, max_bits: 200}\n"


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        (0, 3 + math.log2(65)),
        (1, 3 + math.log2(65)),
        (-7, 5 + math.log2(65)),
        (2**64, math.inf),
        (0.8731, 8 + math.log2(14) + 4 * math.log2(10)),
        (3.0, 8 + math.log2(14) + math.log2(10)),
        (0.0, 8 + math.log2(14) + math.log2(10)),
        (0.1 + 0.2, 66.0),
        (1e-30, 66.0),
        (float(np.float32(1e-30)), 34.0),
        (math.nan, math.inf),
        ("text", math.inf),
    ],
)
def test_bits_of_a_value(value: float, bits: float) -> None:
    assert value_bits(value) == pytest.approx(bits)


def test_bits_are_never_fewer_than_different_values_need() -> None:
    """All numbers of three digits: 999 values of at most 1 + 3 log2(10) bits each, which tell 2,000 apart."""
    assert max(value_bits(number / 1000) for number in range(1, 1000)) >= math.log2(999)


@pytest.mark.parametrize(
    ("metrics", "faults"),
    [
        ({"loss": 0.5}, 0),
        ({"loss": 0.5, "class": {"a": 10, "b": 0}}, 0),
        ({"class": {"a": 9, "b": 20}}, 1),
        ({"class": {"a": [20, 3, 4]}}, 1),
        ({"other": 1}, 1),
        ({"loss": "text"}, 1),
        ({"loss": None}, 1),
        ({"loss": [0.1] * 5}, 1),
        ({"loss": [1] * 7}, 1),
        ({"n": 2**210}, 1),
        ({"loss": math.inf}, 1),
    ],
)
def test_faults_of_metrics(tmp_path: Path, metrics: dict[str, Any], faults: int) -> None:
    policy = read_policy(write_policy(tmp_path, POLICY))
    found = MetricValues().measure(message(metrics=metrics, examples=5), policy, first=False)
    assert found is not None
    assert (found.value, found.found) == (faults, faults > 0)
