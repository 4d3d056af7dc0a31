"""Public algorithms by the names that recordings use; an untrusted recording never causes an import."""

from collections.abc import Mapping
from typing import Any, TypeVar

import torch

from fedleak import client
from fedleak.client.algorithm import ClientAlgorithm
from fedleak.core.class_paths import named_classes
from fedleak.core.errors import InputError, require
from fedleak.core.moved import current_path
from fedleak.training.federated import FederatedModule
from fedleak.training.lightning.hyper_parameters import class_path
from fedleak.training.lightning.plain_arguments import from_plain, subclasses
from fedleak_recorder.shape_check import Shapes

ALGORITHMS: dict[str, type[ClientAlgorithm]] = named_classes(client, ClientAlgorithm)
_OWN = "fedleak."
_MOST_NUMBERS = 2**32
_LEFT_OUT = "set learner to null in the manifest: attacks that simulate clients will be left out."
_WAY_OUT = f"Record again with this version, or {_LEFT_OUT}"
_Kind = TypeVar("_Kind")


def learner_from(description: Mapping[str, Any] | None) -> ClientAlgorithm | None:
    """Public algorithm of the clients that a recording names.

    A learner from outside the project has a class path, and is used only if the user's code has defined it already. Its
    arguments are plain values, see `fedleak.training.lightning.plain_arguments`.

    Args:
        description: ``{"name": ..., "arguments": {...}}`` from the manifest, None where the algorithm is unknown.

    Raises:
        InputError: the name or an argument is unknown, or an argument has a wrong type or range.
    """
    if description is None:
        return None
    name, arguments = description.get("name"), description.get("arguments")
    if isinstance(name, str) and "." in name:
        return _defined(current_path(name), arguments)
    known = f"a learner among {', '.join(sorted(ALGORITHMS))}"
    require(isinstance(name, str) and name in ALGORITHMS, known, repr(name)[:100], _LEFT_OUT.capitalize())
    kind, where = ALGORITHMS[str(name)], f"the learner {name!r} of the manifest"
    fields = {recorded: field for field, recorded in kind.recorded_as.items()}
    if isinstance(arguments, Mapping):
        arguments = {fields.get(key, key): value for key, value in arguments.items()}
    return from_plain(kind, arguments, where=where, way_out=_WAY_OUT)


def _defined(path: str, arguments: Any) -> ClientAlgorithm | None:
    """Algorithm of a learner that the user's own code has defined; nothing is imported."""
    from_outside = {class_path(kind): kind for kind in subclasses(FederatedModule)}
    kind = None if path.startswith(_OWN) else from_outside.get(path)
    if kind is None:
        known = f"Learners of this project: {', '.join(sorted(ALGORITHMS))}."
        raise InputError(
            expected="a learner of this project by its name, or one whose module is imported",
            found=path[:100],
            way_out=f"{known} If you trust the recording, give --learner {path[:100]}; or {_LEFT_OUT}",
        )
    where, values = f"the learner {path!r}", {} if arguments is None else arguments
    _check_size(kind, values, where)
    return from_plain(kind, values, where=where, way_out=_WAY_OUT).algorithm


def _check_size(kind: type[FederatedModule], values: Any, where: str) -> None:
    """Checks that a network fits into memory, on the meta device, which takes none."""
    try:
        with torch.device("meta"):
            built = from_plain(kind, values, where=where, way_out=_WAY_OUT)
    except (RuntimeError, NotImplementedError):
        return  # a constructor that reads values of its tensors; its sizes are those of the user's own code
    numbers = sum(value.numel() for value in built.parameters())
    known = f"a network of at most {_MOST_NUMBERS} numbers, in {where}"
    require(numbers <= _MOST_NUMBERS, known, str(numbers), _WAY_OUT)


def network_of(learner: ClientAlgorithm, held: Shapes) -> dict[str, tuple[int, ...]]:
    """Shapes of the parameters that a learner's clients train, without building the network."""
    try:
        return learner.network_shapes({name: tuple(shape) for name, shape in held.items()})
    except (RuntimeError, TypeError, ValueError, OverflowError, KeyError, IndexError) as error:
        raise InputError(
            expected=f"the network of {type(learner).__name__}",
            found=f"one that cannot be built ({str(error).splitlines()[0] if str(error) else 'no such layer'})",
            way_out=_LEFT_OUT.capitalize(),
        ) from None
