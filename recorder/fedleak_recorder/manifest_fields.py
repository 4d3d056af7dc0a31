"""Fields of manifests, which strangers may have written, as `fedleak_recorder.plain_fields` reads them."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fedleak_recorder.plain_fields import NAME, FieldError, option, read_fields

_LARGEST = 2**40
"""Most numbers in a tensor, and most participants of a release."""
_MOST_DIMENSIONS = 8
"""Dimensions of a tensor; weights of convolutions in space have five."""
_WAY_OUT = "The recording is damaged or foreign: download it again, or record again with this version."


@dataclass(frozen=True, kw_only=True)
class ReleaseFields:
    """What clients publicly do to their deltas before they send them."""

    clip: float | None = option(above=0)
    noise_scale: float = option(low=0)
    parameters: tuple[str, ...] = option(pattern=NAME, distinct=True)
    own_devices: bool = option(default=True)
    epsilon: float | None = option(default=None, above=0)
    delta: float | None = option(default=None, low=0, below=1)
    neighbours: Literal["replace", "add"] = option(default="replace")
    bits: float | None = option(default=None, above=0)
    participants: int = option(default=1, low=1, high=_LARGEST)

    def __post_init__(self) -> None:
        if (self.epsilon is None) != (self.delta is None):
            raise FieldError("delta", "a number if there is an epsilon, and null otherwise,")
        # The (epsilon, delta) of Gaussian noise has a tail for every epsilon.
        if self.delta == 0 and self.noise_scale != 0:
            raise FieldError("delta", "a number above 0, because no Gaussian noise has a delta of 0,")


@dataclass(frozen=True, kw_only=True)
class TensorFields:
    """Shape and type of a recorded parameter."""

    shape: tuple[int, ...] = option(low=1, high=_LARGEST)
    dtype: Literal["float32", "float16", "bfloat16", "float64"] = option()

    def __post_init__(self) -> None:
        check_shape(self.shape, "shape")


@dataclass(frozen=True, kw_only=True)
class AlgorithmFields:
    """The clients' public algorithm."""

    name: str = option()
    arguments: Mapping[str, Any] = option()


@dataclass(frozen=True, kw_only=True)
class ManifestFields:
    """Fields of a recording's manifest, as docs/reference/recording-format.md describes them."""

    parameters: Mapping[str, TensorFields] = option()
    row_parameters: tuple[str, ...] = option(pattern=NAME, distinct=True)
    learner: AlgorithmFields | None = option()
    releases: tuple[ReleaseFields, ...] = option()
    seed: int | None = option(low=-(2**63), high=2**64)
    data: Mapping[str, str] = option()
    config: Mapping[str, Any] = option()
    versions: Mapping[str, str] = option()
    commit: str | None = option()
    auxiliary: str | None = option(default=None, pattern="[0-9a-f]{64}")
    run: str | None = option(default=None)
    format: int = option(default=1)

    def __post_init__(self) -> None:
        if not self.parameters or "" in self.parameters:
            raise FieldError("parameters", "parameters by name")
        if not self.data.get("name"):
            raise FieldError("data", "texts by key, and a name,")
        if not _are_settings(self.config.get("round_settings", {})):
            raise FieldError("config", "settings by key, of which round_settings are columns by round,")
        for name in self.row_parameters:
            if name not in self.parameters or len(self.parameters[name].shape) < 2:
                raise FieldError("row_parameters", "names of tables among the parameters")


def check_fields(content: Mapping[str, Any], *, where: str) -> None:
    """Checks that the fields of a recording's manifest are as docs/reference/recording-format.md describes them.

    Raises:
        InputError: one is missing, unknown, or has a wrong value.
    """
    read_fields(ManifestFields, content, "the manifest", way_out=_WAY_OUT, file=where)


def check_shape(shape: tuple[int, ...], key: str) -> None:
    """Refuses a shape with more numbers than a file can hold.

    Raises:
        FieldError: it has.
    """
    if len(shape) > _MOST_DIMENSIONS or math.prod(shape) > _LARGEST:
        raise FieldError(key, f"a shape of at most {_MOST_DIMENSIONS} dimensions and {_LARGEST} numbers")


def is_whole(value: Any, least: int, most: int) -> bool:
    """Whether a value is an integer in a range; True and 1.0 are not."""
    return type(value) is int and least <= value <= most


def is_names(value: Any) -> bool:
    """Whether a value is a list of texts that are not empty."""
    return isinstance(value, list | tuple) and all(type(name) is str and name for name in value)


def _are_settings(value: Any) -> bool:
    """Whether a value gives columns, each with one number or text, by rounds."""
    if not isinstance(value, dict) or not all(re.fullmatch(r"[0-9]{1,15}", number) for number in value):
        return False
    columns: list[tuple[str, Any]] = []
    for settings in value.values():
        if isinstance(settings, dict):
            columns += settings.items()
        else:
            columns.append(("", settings))  # no columns: its empty name is refused below
    return all(name and _is_setting(setting) for name, setting in columns)


def _is_setting(value: Any) -> bool:
    return type(value) is str or (type(value) in (int, float) and math.isfinite(value))
