"""Algorithms of learners from outside the project, which the user's own code has defined."""

from collections.abc import Collection
from typing import Any

import torch

from fedleak.client.algorithm import ClientAlgorithm
from fedleak.core.class_paths import subclasses
from fedleak.core.errors import InputError, require
from fedleak.core.named_by_strangers import from_plain
from fedleak.core.parameters import class_path
from fedleak.recordings.named_algorithm import LEFT_OUT, WAY_OUT
from fedleak.training.federated import FederatedModule

_OWN = "fedleak."
_MOST_NUMBERS = 2**32
"""Parameters of a network that is built: 16 GiB in float32."""


def defined_algorithm(path: str, arguments: Any, project_learners: Collection[str]) -> ClientAlgorithm | None:
    """Algorithm of a learner that the user's own code has defined; nothing is imported.

    Args:
        path: class path of the learner.
        arguments: its arguments, as plain values.
        project_learners: names of the learners of this project.

    Raises:
        InputError: no such learner is defined, or an argument does not fit.
    """
    # Only what is imported already has subclasses here.
    from_outside = {class_path(kind): kind for kind in subclasses(FederatedModule)}
    kind = None
    if not path.startswith(_OWN):
        kind = from_outside.get(path)
    if kind is None:
        listed_learners = f"Learners of this project: {', '.join(sorted(project_learners))}."
        raise InputError(
            expected="a learner of this project by its name, or one whose module is imported",
            found=path[:100],
            way_out=f"{listed_learners} If you trust the recording, give --learner {path[:100]}; or {LEFT_OUT}",
        )
    where = f"the learner {path!r}"
    values = {} if arguments is None else arguments
    _check_size(kind, values, where)
    return from_plain(kind, values, where=where, way_out=WAY_OUT).algorithm


def _check_size(kind: type[FederatedModule], values: Any, where: str) -> None:
    """Checks that a network fits into memory, on the meta device, which takes none."""
    try:
        with torch.device("meta"):
            module = from_plain(kind, values, where=where, way_out=WAY_OUT)
    except (RuntimeError, NotImplementedError):
        return  # a constructor that reads values of its tensors; its sizes are those of the user's own code
    numbers = sum(parameter.numel() for parameter in module.parameters())
    require(
        numbers <= _MOST_NUMBERS,
        f"a network of at most {_MOST_NUMBERS} numbers, in {where}",
        str(numbers),
        WAY_OUT,
    )
