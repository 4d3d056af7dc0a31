"""Sums of known vectors of words in the update of the first adapters of a network."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.linear_algebra import triangle
from fedleak.attacks.words.joint_pursuit import Sums
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.view import RoundView

SAFETY = 4.0
"""Error of a sum of rounded numbers, over that of independent roundings."""


@dataclass(frozen=True)
class AdapterSums:
    """Sums of vectors of words in the clients' updates.

    Attributes:
        sums: of each client, systems with the same candidates.
        tokens: ``(K,)`` word of each candidate.
        vocabulary: number of words.
        names: parameters from whose change the sums are.
    """

    sums: list[list[Sums]]
    tokens: Tensor
    vocabulary: int
    names: tuple[str, ...]


def adapter_sums(view: RoundView, places: int) -> AdapterSums:
    """Rows of the change of A of the first adapted layers; of B, where A did not move.

    Raises:
        ViewError: the first adapters were not recorded, did not move, or read no vectors of single words.
    """
    algorithm = view.require(PretrainedAlgorithm)
    first = algorithm.first_inputs(places)
    missing = [name for _, name in first.adapters if name not in view.deltas]
    if missing:
        raise ViewError(f"expected the deltas of the first adapters, {', '.join(missing)}; record them")
    values = {**algorithm.frozen, **view.model}
    moved = [a for a, _ in first.adapters if a in view.deltas]
    found = []
    for victim in range(view.victims):
        rows = [view.deltas[a][victim].double() for a in moved]
        if rows and bool(torch.cat(rows).any()):
            errors = [change_error(view, a, victim) for a in moved]
            found.append([Sums(torch.cat(rows), first.vectors, float(torch.tensor(errors).norm()))])
            continue
        own = []
        for a, b in first.adapters:
            change = view.deltas[b][victim].double()
            vectors = first.vectors.double() @ values[a].double().T
            own.append(Sums(triangle(change), vectors, change_error(view, b, victim)))
        found.append(own)
    names = tuple(dict.fromkeys([*moved, *(b for _, b in first.adapters)]))
    return AdapterSums(found, first.tokens, algorithm.vocabulary, names)


def change_error(view: RoundView, name: str, victim: int) -> float:
    """Frobenius norm of the error of a parameter's change: of its rounding, and of declared noise."""
    delta = view.deltas[name][victim].double()
    stored = torch.bfloat16 if name in view.rounded else torch.float32
    rounding = torch.finfo(torch.float32).eps * float(view.model[name].double().norm())
    rounding += torch.finfo(stored).eps * float(delta.norm())
    return SAFETY * rounding + view.noise_scale(name) * math.sqrt(delta.numel())
