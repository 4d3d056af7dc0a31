"""How like the updates of simulated clients are to recorded ones: the base of what simulates a client's twin."""

import abc
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from fedleak.core.batch_norm import is_statistic
from fedleak.core.view import RoundView


@dataclass(frozen=True)
class Likeness:
    """How alike the updates of some clients and those of their twins are.

    Attributes:
        cosine: ``(V,)`` cosine of a client's update and its twin's.
        length: ``(V,)`` binary logarithm of how many times as long the twin's update is.
        tensors: the same by parameter.
        model: ``(V,)`` how many times the difference of both has the global model in it.
        zeros: ``(V,)`` share of a client's numbers that are 0 where its twin's are not.
        off_whole: ``(V,)`` mean squared distance of the inferred counts of examples from whole numbers; NaN where
            errors are too large for whole numbers to show.
    """

    cosine: Tensor
    length: Tensor
    tensors: dict[str, Tensor]
    model: Tensor
    zeros: Tensor
    off_whole: Tensor

    @classmethod
    def of(
        cls, sent: Mapping[str, Tensor], simulated: Mapping[str, Tensor], model: Mapping[str, Tensor], off: Tensor
    ) -> "Likeness":
        """Compares what clients sent ``(V, *shape)`` with their twins' updates ``(V, *shape)``."""
        received, twin_tensors = flat_alike(sent, simulated)
        update = torch.cat(list(received.values()), dim=1)
        twin = torch.cat(list(twin_tensors.values()), dim=1)
        weights = torch.cat([model[name].double().flatten() for name in received])
        # Least squares of update - twin on the model's weights: 0 unless one of both decays or sends the weights.
        smallest = torch.finfo(torch.float64).tiny
        in_model = (update - twin) @ weights / (weights @ weights).clamp(min=smallest)
        # A parameter that no client changed has no length to compare.
        tensors = {}
        for name, tensor in received.items():
            if bool(tensor.any()):
                tensors[name] = _log_ratio(twin_tensors[name], tensor)
        changed = twin != 0
        return cls(
            cosine=cosine_similarity(update, twin, dim=1),
            length=_log_ratio(twin, update),
            tensors=tensors,
            model=in_model,
            zeros=((update == 0) & changed).sum(1) / changed.sum(1).clamp(min=1),
            off_whole=off,
        )

    @classmethod
    def stacked(cls, parts: list["Likeness"]) -> "Likeness":
        """Repetitions of the same clients, ``(R, V)`` each."""
        # Only parameters that every repetition could compare.
        names = set(parts[0].tensors)
        for part in parts:
            names &= part.tensors.keys()
        tensors = {}
        for name in parts[0].tensors:
            if name in names:
                tensors[name] = torch.stack([part.tensors[name] for part in parts])
        return cls(
            cosine=torch.stack([part.cosine for part in parts]),
            length=torch.stack([part.length for part in parts]),
            tensors=tensors,
            model=torch.stack([part.model for part in parts]),
            zeros=torch.stack([part.zeros for part in parts]),
            off_whole=torch.stack([part.off_whole for part in parts]),
        )


def _log_ratio(simulated: Tensor, sent: Tensor) -> Tensor:
    smallest = torch.finfo(torch.float64).tiny
    ratio: Tensor = simulated.norm(dim=1).clamp(min=smallest) / sent.norm(dim=1).clamp(min=smallest)
    return ratio.log2()


def flat_alike(*updates: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """Those tensors of updates that all have with one shape, without statistics, as float64 ``(V, D)`` each.

    The rows of a table that a client uses depend on its examples, so tables of such rows cannot be compared.
    """
    first, *others = updates
    names = []
    for name in first:
        is_alike = all(name in update and update[name].shape == first[name].shape for update in others)
        if is_alike and not is_statistic(name):
            names.append(name)
    return [_flattened(update, names) for update in updates]


def _flattened(update: Mapping[str, Tensor], names: list[str]) -> dict[str, Tensor]:
    return {name: update[name].double().reshape(len(update[name]), -1) for name in names}


class Twins(abc.ABC):
    """Simulated clients of the declared learner that should send what the clients of a view sent.

    Who infers what a client trained on can simulate a client that trains on the like, its twin. If the clients run
    what the recording declares, their updates are as like those of their twins as a simulated client's is. A subclass
    in the folder of a family of attacks is found there.
    """

    @abc.abstractmethod
    def __init__(self, view: RoundView, generator: torch.Generator) -> None:
        """Prepares the twins of the clients of a view.

        Raises:
            ViewError: the view lacks something that these twins need.
        """

    @abc.abstractmethod
    def likeness(self, deltas: Mapping[str, Tensor]) -> Likeness:
        """How alike updates ``(V, *shape)`` and those of their twins are."""

    @abc.abstractmethod
    def expected(self) -> Likeness:
        """The same of simulated clients, which run the declared learner, ``(R, V)`` each for R repetitions."""
