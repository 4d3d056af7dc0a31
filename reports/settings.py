"""Cells in words: what of their settings differs, and how to say it and their numbers."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

_SPEAKING = frozenset({"data", "ranker", "click_model"})
"""Keys whose values need no name."""


def differing(settings: Sequence[Mapping[str, Any]]) -> set[str]:
    """Keys that do not have one value throughout; a key that some settings lack is one of them."""
    keys = {key for setting in settings for key in setting}
    return {key for key in keys if len({repr(setting.get(key)) for setting in settings}) > 1}


def describe(setting: Mapping[str, Any], keys: Collection[str] | None = None) -> str:
    """A setting in a few words: all of it, or only some keys."""
    kept = {key: value for key, value in setting.items() if keys is None or key in keys}
    return ", ".join(str(value) if key in _SPEAKING else f"{key} {value}" for key, value in kept.items())


def number(value: float) -> str:
    """Three decimals, or what is so small that they would hide it with its power of ten."""
    return f"{value:.3f}" if value == 0 or not abs(value) < 0.0005 else f"{value:.1e}"
