"""Participants of sums: what a server can have known, and what no shard may say."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedleak_recorder.format import Manifest
from fedleak_recorder.in_memory_shard import InMemoryShard
from fedleak_recorder.shard_check import PARTICIPANTS, check_seen
from fedleak_recorder.tensor_checks import MisfitError

MANIFEST = Manifest(
    parameters={"bias": {"shape": [2], "dtype": "float32"}},
    row_parameters=[],
    learner=None,
    releases=[],
    seed=None,
    data={"name": "foreign", "sha256": ""},
    config={},
    versions={},
    commit=None,
)


def check(participants: npt.NDArray[Any]) -> None:
    """Checks a shard of two messages with these participants."""
    shard = {
        "clients": np.array([11, 12]),
        "counts": np.array([5, 6]),
        "deltas/bias": np.zeros((2, 2), np.float32),
        PARTICIPANTS: participants,
    }
    check_seen(InMemoryShard(shard), MANIFEST)


@pytest.mark.parametrize("right", [[[11, 12], [11, 12]], [[11, 13, 14], [12, 15, -1]], [[11], [12]]], ids=str)
def test_participants_of_a_sum_are_distinct_pseudonyms_padded_with_minus_one(right: list[list[int]]) -> None:
    check(np.array(right, np.int64))


@pytest.mark.parametrize(
    "wrong",
    [
        np.array([[11, 12]]),
        np.array([11, 12]),
        np.array([[[11], [12]], [[11], [12]]]),
        np.array([[11.0, 12.0], [11.0, 12.0]]),
        np.array([[11, 12], [11, 12]], np.int32),
        np.array([[11, -2], [11, 12]]),
        np.array([[11, 12], [12, 12]]),
        np.array([[11, 12], [-1, -1]]),
        np.zeros((2, 0), np.int64),
    ],
    ids=["rows", "one dimension", "three", "floats", "int32", "below -1", "twice", "none", "no column"],
)
def test_participants_that_no_sum_has_are_refused(wrong: npt.NDArray[Any]) -> None:
    with pytest.raises(MisfitError, match=PARTICIPANTS):
        check(wrong)
