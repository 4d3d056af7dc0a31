"""What the arguments of a learner may be that a recording names, by kind and range: a stranger may have written it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from datamodules.recordings.manifest_fields import is_number, is_whole
from modules.learners.text_options import TextGoal
from modules.nets.classifiers import Activation, NetworkName, Norm
from protocol.click_models import CLICK_MODELS
from protocol.errors import InputError
from protocol.margin_losses import LOSSES
from protocol.simulators import ListMetric

_LARGEST = 10**6
"""Above every width of a network, number of classes or size of a vocabulary."""
_SUM_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Kind:
    """What an argument may be.

    Attributes:
        fits: whether a value is of this kind.
        said: the kind, for the message.
    """

    fits: Callable[[Any], bool]
    said: str


def check_arguments(arguments: Any, kinds: Mapping[str, "Kind | Mapping[str, Any]"], *, where: str) -> None:
    """Refuses arguments that are unknown, or not of their kinds; one that is missing is left to its default.

    Args:
        arguments: as JSON has them.
        kinds: by name; a mapping of kinds for what has arguments of its own.
        where: whose arguments, for the message.

    Raises:
        InputError: names the argument.
    """
    if not isinstance(arguments, Mapping):
        raise _wrong(where, "arguments by name", arguments)
    for name, value in arguments.items():
        kind = kinds.get(name)
        if kind is None:
            raise _wrong(where, f"arguments among {', '.join(kinds)}", name)
        if isinstance(kind, Mapping):
            check_arguments(value, kind, where=f"{where}.{name}")
        elif not kind.fits(value):
            raise _wrong(where, f"{name}: {kind.said}", value)


def _whole(least: int, most: int = _LARGEST) -> Kind:
    return Kind(lambda value: is_whole(value, least, most), f"a whole number from {least} to {most}")


def _number(least: float, most: float, *, above: bool = False) -> Kind:
    def fits(value: Any) -> bool:
        return is_number(value, least) and value <= most and not (above and value == least)

    return Kind(fits, f"a number {'above' if above else 'from'} {least:g} to {most:g}")


def _one_of(*names: str) -> Kind:
    return Kind(lambda value: type(value) is str and value in names, f"one of {', '.join(names)}")


def _or_none(kind: Kind) -> Kind:
    return Kind(lambda value: value is None or kind.fits(value), f"null, or {kind.said}")


def _several(kind: Kind, least: int, most: int) -> Kind:
    def fits(value: Any) -> bool:
        return isinstance(value, list | tuple) and least <= len(value) <= most and all(map(kind.fits, value))

    return Kind(fits, f"{least} to {most} of these: {kind.said}")


def _is_law(value: Any) -> bool:
    right = isinstance(value, list | tuple) and all(is_number(share, 0) for share in value)
    return right and len(value) in {grades for _, grades in CLICK_MODELS} and abs(sum(value) - 1) < _SUM_TOLERANCE


_LOCAL: dict[str, Kind] = {
    "optimizer": _one_of("sgd", "adam", "adadelta"),
    "learning_rate": _number(0, 1e6, above=True),
    "momentum": _number(0, 1),
    "betas": _several(_number(0, 1), 2, 2),
    "rho": _number(0, 1),
    "eps": _number(0, 1),
    "eps_root": _number(0, 1),
    "weight_decay": _number(0, 1e6),
    "epochs": _whole(1, 10**9),
    "batch_size": _or_none(_whole(1, 10**9)),
    "updates": _or_none(_whole(1, 10**9)),
    "engine": _one_of("auto", "vectorized", "sequential"),
    "clients_per_chunk": _or_none(_whole(1)),
    "threads": _or_none(_whole(1, 4096)),
}
_CLASSIFIER: dict[str, Kind] = {
    "name": _one_of(*get_args(NetworkName)),
    "hidden": _whole(1),
    "channels": _whole(1),
    "activation": _one_of(*get_args(Activation)),
    "norm": _one_of(*get_args(Norm)),
    "dropout": Kind(lambda value: is_number(value, 0) and value < 1, "a number from 0 to below 1"),
}
_TAGGER: dict[str, Kind] = {
    "name": Kind(lambda value: type(value) is str and len(value) < 100, "a network's name"),
    "weights": Kind(lambda value: value is None, "null: a recording names no file of the machine that reads it"),
}
_TEXT: dict[str, Kind] = {
    "task": _one_of(*get_args(TextGoal)),
    "vocabulary": _whole(2),
    "embedding": _whole(1),
    "hidden": _whole(1),
}
_UPDATE_L1 = Kind(
    lambda value: (
        value is None
        or (
            isinstance(value, Mapping)
            and value.keys() <= {"strength", "reduction", "parameters"}
            and is_number(value.get("strength"), 0)
            and value.get("reduction", "mean") in ("mean", "sum")
            and _several(Kind(lambda name: type(name) is str, "a name"), 0, 1000).fits(value.get("parameters", ()))
        )
    ),
    "null, or strength (0 or more), reduction (mean or sum) and parameters",
)
_CLICKS: dict[str, Kind] = {
    "click_model": _one_of(*sorted({name for name, _ in CLICK_MODELS})),
    "grade_law": Kind(_is_law, "shares of 3 or 5 grades that sum to 1"),
}
ARGUMENTS: dict[str, Mapping[str, Kind | Mapping[str, Any]]] = {
    "classifier": {
        "network": _CLASSIFIER,
        "image_shape": _several(_whole(1), 3, 3),
        "num_classes": _whole(1),
        "local": _LOCAL,
    },
    "fncf": {"user_dim": _whole(1), "local": _LOCAL, "update_l1": _UPDATE_L1},
    "foltr-es": {
        "metric": _one_of(*get_args(ListMetric)),
        "numbers": _whole(1),
        "truthful": _number(0, 1),
        **_CLICKS,
    },
    "fpdgd": {"learning_rate": _number(0, 1e6, above=True), **_CLICKS},
    "image-ranker": {"learning_rate": _number(0, 1e6, above=True), "full_batch_steps": _whole(1, 10**4)},
    "mf": {
        "dim": _whole(1),
        "loss": _one_of(*LOSSES),
        "clip": _or_none(_number(0, 1e30, above=True)),
        "local": _LOCAL,
    },
    "tagger": {"network": _TAGGER, "num_classes": _whole(1), "local": _LOCAL},
    "text": {"network": _TEXT, "local": _LOCAL},
}
"""By learner, what its arguments may be."""


def _wrong(where: str, expected: str, found: Any) -> InputError:
    return InputError(
        expected=f"{expected}, in {where}",
        found=repr(found)[:100],
        way_out="Record again with this version, or set learner to null in the manifest: "
        "attacks that simulate clients will be left out.",
    )
