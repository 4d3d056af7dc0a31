"""Thresholds from honest rounds: their bound, and what is too few."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedleak_guard.thresholds import calibrated, logged_rounds, read_thresholds, write_thresholds
from fedleak_recorder.errors import InputError

KNOWN: dict[str, Any] = {"source": "a test", "tensors": "0" * 64, "records": 3}


def rounds(count: int, seed: int = 0) -> list[dict[str, float]]:
    draws = np.random.default_rng(seed).exponential(size=(count, 2))
    return [{"a": float(a), "b": float(-1 - b)} for a, b in draws]


def test_thresholds_are_the_margin_times_the_largest_value() -> None:
    honest = rounds(99)
    made = calibrated(honest, false_positives=0.05, margin=3, **KNOWN)
    largest = {name: max(one[name] for one in honest) for name in ("a", "b")}
    assert made.thresholds["a"] == pytest.approx(3 * largest["a"])
    assert made.thresholds["b"] == pytest.approx(largest["b"] + 2 * abs(largest["b"]))
    assert (made.false_positives, made.values) == (2 / 100, 99)


def test_the_bound_holds_for_other_rounds() -> None:
    """At a margin of 1, the mean over calibrations is at most the bound, and not far below for independent checks."""
    rates = []
    for seed in range(200):
        made = calibrated(rounds(39, seed), false_positives=0.05, margin=1, **KNOWN)
        other = rounds(400, 10**6 + seed)
        rates.append(np.mean([any(one[name] > made.thresholds[name] for name in one) for one in other]))
    assert 0.035 < np.mean(rates) < 0.06


def test_too_few_rounds_are_an_error_that_says_how_many() -> None:
    with pytest.raises(InputError, match="at least 39 honest rounds for 2 checks"):
        calibrated(rounds(38), false_positives=0.05, **KNOWN)
    with pytest.raises(InputError, match="honest rounds"):
        calibrated([], false_positives=0.05, **KNOWN)
    with pytest.raises(InputError, match="finite values"):
        calibrated([*rounds(50), {"a": float("nan"), "b": 0.0}], false_positives=0.05, **KNOWN)


def test_rounds_that_lack_a_check_do_not_count() -> None:
    assert calibrated([*rounds(39), {"a": 100.0}], false_positives=0.05, **KNOWN).values == 39


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = calibrated(rounds(50), false_positives=0.05, **KNOWN)
    write_thresholds(tmp_path / "thresholds.json", made)
    assert read_thresholds(tmp_path / "thresholds.json") == made


@pytest.mark.parametrize(
    "change",
    [
        {"thresholds": {"a": "1.5"}},
        {"thresholds": {"a": True}},
        {"thresholds": {}},
        {"thresholds": [1.5]},
        {"records": {}},
        {"records": "3"},
        {"records": -1},
        {"records": True},
        {"tensors": ["0" * 64]},
        {"tensors": "0" * 63},
        {"values": 0},
        {"values": 1.5},
        {"false_positives": "0.05"},
        {"false_positives": 2},
        {"source": None},
        {"more": 1},
    ],
)
def test_a_file_of_other_types_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "thresholds.json"
    write_thresholds(path, calibrated(rounds(50), false_positives=0.05, **KNOWN))
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InputError, match="thresholds of a format that is known"):
        read_thresholds(path)


def entry(job: str, tensors: str, value: float, event: str = "released", *, found: bool = False) -> dict[str, Any]:
    statistics = {"received-model": {"a": value, "records": 3, "tensors": tensors}}
    return {"job": job, "event": event, "checks": {"received-model": {"found": found}}, "statistics": statistics}


def test_rounds_of_a_log_are_those_that_left_of_the_last_model() -> None:
    log = [entry("old", "x", 9.0), entry("one", "y", 1.0), entry("one", "y", 5.0, "refused")]
    log += [entry("two", "y", 2.0), entry("two", "y", 7.0, found=True), {**entry("two", "y", 3.0), "statistics": {}}]
    assert logged_rounds(log) == ([{"a": 1.0}, {"a": 2.0}], "y", 3, 2)
    assert logged_rounds(log, ["one"]) == ([{"a": 1.0}], "y", 3, 1)
    assert logged_rounds([]) == ([], "", 0, 0)
