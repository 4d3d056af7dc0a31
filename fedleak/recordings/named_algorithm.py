"""Public algorithms by the names that recordings use; an untrusted recording never causes an import."""

from collections.abc import Mapping
from typing import Any

from fedleak import client
from fedleak.client.algorithm import ClientAlgorithm
from fedleak.core.class_paths import named_classes
from fedleak.core.errors import InputError, require
from fedleak.core.moved import current_path
from fedleak.core.named_by_strangers import from_plain
from fedleak_recorder.shape_check import Shapes

ALGORITHMS: dict[str, type[ClientAlgorithm]] = named_classes(client, ClientAlgorithm)
LEFT_OUT = "set learner to null in the manifest: attacks that simulate clients will be left out."
WAY_OUT = f"Record again with this version, or {LEFT_OUT}"


def learner_from(description: Mapping[str, Any] | None) -> ClientAlgorithm | None:
    """Public algorithm of the clients that a recording names.

    A learner from outside the project has a class path, and is used only if the user's code has defined it already. Its
    arguments are plain values, see `fedleak.core.named_by_strangers`.

    Args:
        description: ``{"name": ..., "arguments": {...}}`` from the manifest, None where the algorithm is unknown.

    Raises:
        InputError: the name or an argument is unknown, or an argument has a wrong type or range.
    """
    if description is None:
        return None
    name = description.get("name")
    arguments = description.get("arguments")
    # A path is that of a learner of the user's own.
    if isinstance(name, str) and "." in name:
        from fedleak.recordings.outside_algorithm import defined_algorithm  # takes an import of Lightning

        return defined_algorithm(current_path(name), arguments, ALGORITHMS)
    require(
        isinstance(name, str) and name in ALGORITHMS,
        f"a learner among {', '.join(sorted(ALGORITHMS))}",
        repr(name)[:100],
        LEFT_OUT.capitalize(),
    )
    kind = ALGORITHMS[str(name)]
    # Recordings keep the names of arguments that fields have had before.
    field_of_recorded = {recorded: field for field, recorded in kind.recorded_as.items()}
    if isinstance(arguments, Mapping):
        arguments = {field_of_recorded.get(key, key): value for key, value in arguments.items()}
    return from_plain(kind, arguments, where=f"the learner {name!r} of the manifest", way_out=WAY_OUT)


def network_of(learner: ClientAlgorithm, recorded_shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """Shapes of the parameters that a learner's clients train, without building the network."""
    kind = type(learner).__name__
    try:
        return learner.network_shapes({name: tuple(shape) for name, shape in recorded_shapes.items()})
    except KeyError as error:  # a size that is read off the shape of a parameter
        raise InputError(
            expected=f"the parameter {error.args[0]}, which {kind} has",
            found=f"a model of {', '.join(recorded_shapes) or 'no parameters'}",
            way_out=LEFT_OUT.capitalize(),
        ) from error
    except (RuntimeError, TypeError, ValueError, OverflowError, IndexError) as error:
        reason = "no such layer"
        if str(error):
            reason = str(error).splitlines()[0]
        raise InputError(
            expected=f"the network of {kind}",
            found=f"one that cannot be built ({reason})",
            way_out=LEFT_OUT.capitalize(),
        ) from None
