"""Public algorithms by the names that recordings use; an untrusted recording never causes an import."""

import dataclasses
import math
import sys
from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from jsonargparse import ArgumentError, ArgumentParser

from defenses.update_l1 import UpdateL1
from fedleak_recorder.shape_check import Shapes
from modules.federated import FederatedModule
from modules.hyper_parameters import check_classes
from modules.learners.decoder import DecoderSimulator
from modules.learners.fncf import FNCFSimulator
from modules.learners.foltr_es import FOLtRESSimulator
from modules.learners.fpdgd import FPDGDSimulator
from modules.learners.image_classifier import ImageSimulator
from modules.learners.image_ranker import VoteSimulator
from modules.learners.matrix_factorization import MFSimulator
from modules.learners.photo_tagger import TaggerSimulator
from modules.learners.text import TextSimulator
from modules.simulator import PublicAlgorithm
from protocol.errors import InputError, require

SIMULATORS: dict[str, type[PublicAlgorithm]] = {
    kind.name: kind
    for kind in (
        DecoderSimulator,
        FNCFSimulator,
        FOLtRESSimulator,
        FPDGDSimulator,
        ImageSimulator,
        MFSimulator,
        TaggerSimulator,
        TextSimulator,
        VoteSimulator,
    )
}
_LARGEST_WHOLE, _LARGEST_NUMBER, _MOST_ENTRIES = 10**8, 1e30, 1000
_LEFT_OUT = "set learner to null in the manifest: attacks that simulate clients will be left out."
_Made = TypeVar("_Made")


def learner_from(description: Mapping[str, Any] | None) -> PublicAlgorithm | None:
    """Public algorithm of the clients that a recording names.

    A class path, as of a learner from outside the project, is used only if its module is already imported.

    Args:
        description: ``{"name": ..., "arguments": {...}}`` from the manifest, None where the algorithm is unknown.

    Raises:
        InputError: the name or an argument is unknown, or an argument has a wrong type or range.
    """
    if description is None:
        return None
    name, arguments = description.get("name"), description.get("arguments")
    if isinstance(name, str) and "." in name:
        return _imported(name, arguments)
    known = f"a learner among {', '.join(sorted(SIMULATORS))}"
    require(isinstance(name, str) and name in SIMULATORS, known, repr(name)[:100], _LEFT_OUT.capitalize())
    return from_plain(SIMULATORS[str(name)], arguments, where=f"the learner {name!r} of the manifest")


def _imported(path: str, arguments: Any) -> PublicAlgorithm | None:
    module, _, name = path.rpartition(".")
    kind = getattr(sys.modules.get(module), name, None)
    if not (isinstance(kind, type) and issubclass(kind, FederatedModule)):
        raise InputError(
            expected="a learner whose module is imported",
            found=path,
            way_out=f"If you trust the recording, give --learner {path}; or {_LEFT_OUT}",
        )
    check_classes(arguments)
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(FederatedModule, "learner")
    where = f"the learner {path!r}"
    try:
        config = parser.parse_object({"learner": {"class_path": path, "init_args": dict(arguments or {})}})
        built: FederatedModule = parser.instantiate_classes(config).learner
        return built.simulator()
    except (ArgumentError, TypeError, ValueError, AttributeError) as error:
        raise _wrong(where, "its arguments", str(error)) from None


def from_plain(kind: type[_Made], values: Any, *, where: str) -> _Made:
    """Dataclass or defence from JSON values, each checked against the type of its field.

    Args:
        kind: the class.
        values: values by field; a missing one has its default.
        where: origin of the values, for the message.

    Raises:
        InputError: a value is unknown, has a wrong type, or is out of range.
    """
    if not isinstance(values, Mapping):
        raise _wrong(where, "arguments by name", values)
    hints = _types(kind)
    made = {}
    for name, value in values.items():
        if name not in hints:
            raise _wrong(where, f"arguments among {', '.join(hints)}", name)
        made[name] = _value(hints[name], value, name, where)
    try:
        return kind(**made)
    except InputError as error:
        raise _wrong(where, error.expected, error.found) from None
    except (TypeError, ValueError) as error:
        raise _wrong(where, "arguments that go together", str(error)) from None


def network_of(learner: PublicAlgorithm, held: Shapes) -> dict[str, tuple[int, ...]]:
    """Shapes of the parameters that a learner's clients train, without building the network.

    Args:
        learner: from `learner_from`.
        held: shapes of the recorded model, for sizes that are not arguments.

    Raises:
        InputError: the network cannot be built, or the recorded model lacks its layers.
    """
    try:
        return learner.network_shapes({name: tuple(shape) for name, shape in held.items()})
    except (RuntimeError, TypeError, ValueError, OverflowError, KeyError, IndexError) as error:
        raise InputError(
            expected=f"the network of {type(learner).__name__}",
            found=f"one that cannot be built ({str(error).splitlines()[0] if str(error) else 'no such layer'})",
            way_out=_LEFT_OUT.capitalize(),
        ) from None


def _types(kind: type) -> dict[str, Any]:
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    hints = get_type_hints(kind.__init__)  # type: ignore[misc]
    return {name: hint for name, hint in hints.items() if name != "return"}


def _value(hint: Any, value: Any, name: str, where: str) -> Any:
    """Value of a field, converted to its type."""
    origin, options = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if value is None and NoneType in options:
            return None
        return _value(next(option for option in options if option is not NoneType), value, name, where)
    if dataclasses.is_dataclass(hint) or hint is UpdateL1:
        return from_plain(hint, value, where=f"{where}.{name}")  # type: ignore[arg-type]
    if isinstance(origin, type) and issubclass(origin, Sequence):
        entries = isinstance(value, list | tuple) and len(value) <= _MOST_ENTRIES
        fixed = origin is tuple and options[-1] is not ...
        if not entries or (fixed and len(value) != len(options)):
            raise _wrong(where, f"{name}: {len(options) if fixed else 'several'} values", value)
        kinds = options if fixed else options[:1] * len(value)
        return tuple(_value(kind, one, name, where) for kind, one in zip(kinds, value, strict=True))
    fits, said = _fits(hint, value)
    if not fits:
        raise _wrong(where, f"{name}: {said}", value)
    return value


def _fits(hint: Any, value: Any) -> tuple[bool, str]:
    """Whether a plain value has a type, and a description of the type."""
    if get_origin(hint) is Literal:
        return type(value) is str and value in get_args(hint), f"one of {', '.join(get_args(hint))}"
    if hint is str:
        return type(value) is str and len(value) < _MOST_ENTRIES, "a text"
    if hint is bool:
        return type(value) is bool, "true or false"
    if issubclass(hint, int):
        fits, said = type(value) is int and abs(value) <= _LARGEST_WHOLE, f"a whole number up to {_LARGEST_WHOLE}"
    else:
        fits = type(value) in (int, float) and math.isfinite(value) and abs(value) <= _LARGEST_NUMBER
        said = f"a number up to {_LARGEST_NUMBER:g}"
    try:
        return fits and (not hasattr(hint, "_expression") or hint(value) is not None), said
    except (TypeError, ValueError):
        return False, str(hint._expression).replace("v", "a number")


def _wrong(where: str, expected: str, found: Any) -> InputError:
    return InputError(
        expected=f"{expected}, in {where}",
        found=str(found)[:100] if isinstance(found, str) else repr(found)[:100],
        way_out=f"Record again with this version, or {_LEFT_OUT}",
    )
