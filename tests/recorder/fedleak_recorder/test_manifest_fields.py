"""Releases that strangers declare."""

from typing import Any

import pytest

from fedleak_recorder.manifest_fields import is_release

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


@pytest.mark.parametrize(("change", "right"), [*((one, True) for one in RIGHT), *((one, False) for one in WRONG)])
def test_releases_are_possible(change: dict[str, Any], right: bool) -> None:
    assert is_release({**PLAIN, **change}) == right
