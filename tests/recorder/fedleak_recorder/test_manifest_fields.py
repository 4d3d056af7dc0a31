"""Releases that strangers declare."""

from typing import Any

import pytest

from fedleak_recorder.errors import InputError
from fedleak_recorder.manifest_fields import ReleaseFields
from fedleak_recorder.plain_fields import read_fields

PLAIN: dict[str, Any] = {"clip": 1.0, "noise_scale": 0.5, "parameters": ["weight"]}
RIGHT: list[dict[str, Any]] = [
    {},
    {"epsilon": 2, "delta": 1e-5, "neighbours": "add"},
    {"clip": None, "own_devices": False},
    {"participants": 10},
]
WRONG: list[dict[str, Any]] = [
    *({"epsilon": 2}, {"delta": 1e-5}, {"epsilon": 0, "delta": 1e-5}, {"epsilon": True, "delta": 1e-5}),
    *({"epsilon": 2, "delta": 0}, {"epsilon": 2, "delta": 1}, {"own_devices": 1}, {"neighbours": "none"}),
    *({"clip": 0}, {"noise_scale": -1}, {"parameters": ["weight", "weight"]}, {"unheard": 1}),
    *({"participants": 0}, {"participants": 2.5}, {"participants": True}),
]


def read(change: dict[str, Any]) -> ReleaseFields:
    return read_fields(ReleaseFields, {**PLAIN, **change}, "a release", way_out="Correct it.")


@pytest.mark.parametrize("change", RIGHT)
def test_possible_releases_are_read(change: dict[str, Any]) -> None:
    assert read(change).parameters == ("weight",)


@pytest.mark.parametrize("change", WRONG)
def test_impossible_releases_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="a release"):
        read(change)
