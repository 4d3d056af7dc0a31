"""Codebook manipulation, ours: features that make the update an exact linear code of the clicks.

The update of a list is ``X^T L_w I``, linear in the clicks I but for the weights w, which move as the client trains.
Give all documents of a list one score: then every pair weighs 1/8 whatever the ranking (position ratio 1/2, slope of
the sigmoid 1/4), so that the update is ``(n / 8) C^T I`` for centred codes C. Codes orthogonal to the ranker and to
the codes of other lists never change a score: the code holds over the whole local pass, in whatever order.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.manipulation.base import Manipulation
from protocol.rankers import HIDDEN, LINEAR, OUTPUT
from protocol.view import ViewError
from ranges import PositiveFloat

_SWITCHED_ON = 0.05
"""Input of the hidden unit that carries a list."""


@dataclass(frozen=True, kw_only=True)
class Codebook(Manipulation):
    """A code of its own for each list of a client, in directions that change no score.

    A linear ranker has F - 1 directions; lists share them out evenly, and where a list gets fewer than n - 1 its code
    is a random tight frame. A ranker of H hidden units has F - H directions for each unit: a list switches on one unit
    and switches off all others by a wide margin.

    Args:
        norm: expected L2 norm of the whole update at learning rate `learning_rate`; twice the clients' clip norm makes
            clipping bind nearly always, so that all of the allowed energy is used (RAIFLE clips at 0.25).
        learning_rate: the clients' local learning rate.

    Raises:
        ViewError: the ranker leaves no direction for some list.
    """

    name = "codebook"

    norm: PositiveFloat = 0.5
    learning_rate: PositiveFloat = 0.1

    def features(
        self, model: Mapping[str, Tensor], features: Tensor, mask: Tensor, *, generator: torch.Generator
    ) -> Tensor:
        sent = self._linear(model[LINEAR], mask, generator) if LINEAR in model else self._neural(model, mask, generator)
        return sent.to(features.dtype) * mask[..., None]

    def _linear(self, ranker: Tensor, mask: Tensor, generator: torch.Generator) -> Tensor:
        free = orthogonal_complement(ranker.double()[None], generator)
        blocks = share_out(mask.shape[1], len(free), mask.shape[2] - 1)
        codes = self._codes(mask, blocks, generator)
        return codes @ free[: codes.shape[-1]]

    def _neural(self, model: Mapping[str, Tensor], mask: Tensor, generator: torch.Generator) -> Tensor:
        hidden, output = model[HIDDEN].double(), model[OUTPUT].double()
        free = orthogonal_complement(hidden, generator)
        units = output.abs().argsort(descending=True)[: max(1, -(-mask.shape[1] * (mask.shape[2] - 1) // len(free)))]
        # List q is carried by one unit; the lists of a unit share its directions.
        carrier = units[torch.arange(mask.shape[1]) % len(units)]
        rank = torch.arange(mask.shape[1]) // len(units)
        per_unit = -(-mask.shape[1] // len(units))
        blocks = share_out(per_unit, len(free), mask.shape[2] - 1)
        codes = self._codes(mask, [blocks[int(r)] for r in rank], generator)
        codes = codes @ free[: codes.shape[-1]]
        inputs = -torch.maximum(torch.tensor(4.0), 3 / output.abs().clamp(min=1e-3)).expand(len(carrier), -1).clone()
        inputs[torch.arange(len(carrier)), carrier] = _SWITCHED_ON
        base = inputs @ torch.linalg.pinv(hidden).T
        sent: Tensor = base[:, None] + codes / output[carrier][:, None, None]
        return sent

    def _codes(self, mask: Tensor, blocks: list[range], generator: torch.Generator) -> Tensor:
        """Codes ``(C, Q, L, D)`` in the free directions, of the amplitude that gives the expected norm."""
        clients, lists, length = mask.shape
        codes = torch.zeros(clients, lists, length, max(block.stop for block in blocks), dtype=torch.float64)
        for number, block in enumerate(blocks):
            codes[:, number, :, block.start : block.stop] = centred_frames(mask[:, number], len(block), generator)
        documents = mask.sum(-1).double()
        gain = self.learning_rate * documents / 8
        # A list of n documents of which a third are clicked; a frame keeps its share of the n - 1 directions.
        kept = torch.tensor([len(block) for block in blocks]).minimum(documents - 1) / (documents - 1).clamp(min=1)
        energy = (gain.square() * documents * (2 / 9) * kept).sum(1)
        return codes * (self.norm / energy.clamp(min=1e-12).sqrt())[:, None, None, None]


def share_out(lists: int, directions: int, most: int) -> list[range]:
    """Consecutive directions for each list: as even as they go, and not more than a list can use."""
    if directions < lists:
        raise ViewError(
            f"expected at most {directions} lists per client for this ranker, got {lists}: no room for codes"
        )
    edges = [number * directions // lists for number in range(lists + 1)]
    return [range(start, min(stop, start + most)) for start, stop in itertools.pairwise(edges)]


def orthogonal_complement(rows: Tensor, generator: torch.Generator) -> Tensor:
    """Orthonormal ``(F - K, F)`` directions, random among those orthogonal to ``rows (K, F)``."""
    count, width = rows.shape
    filling = torch.randn(width, width - count, generator=generator, dtype=rows.dtype)
    complement: Tensor = torch.linalg.qr(torch.cat([rows.T, filling], dim=1)).Q[:, count:].T
    return complement


def centred_frames(mask: Tensor, width: int, generator: torch.Generator) -> Tensor:
    """Random codes of ``width`` numbers for each document, orthonormal over the list and summing to zero.

    Args:
        mask: ``(C, L)`` True for documents; padding comes last.
        width: numbers in a code; those beyond n - 1 are zero.
        generator: source of randomness.

    Returns:
        ``(C, L, width)`` whose columns are orthonormal, orthogonal to the ones, and zero at padding.
    """
    clients, length = mask.shape
    draws = torch.randn(clients, length, width, generator=generator, dtype=torch.float64) * mask[..., None]
    documents = mask.sum(1).double().clamp(min=1)
    centred = (draws - draws.sum(1, keepdim=True) / documents[:, None, None]) * mask[..., None]
    left, values, right = torch.linalg.svd(centred, full_matrices=False)
    usable = torch.arange(values.shape[1]) < (documents - 1)[:, None]
    frames: Tensor = (left * usable[:, None]) @ right
    return frames
