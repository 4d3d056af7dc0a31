"""Codebook manipulation: features for which the update is an exact linear code of the clicks.

The update of a list is ``X^T L_w I``: linear in the clicks I, except for the pair weights w, which change during
training. If all documents of a list have the same score, every pair has weight 1/8 whatever the ranking (position ratio
1/2, slope of the sigmoid 1/4), and the update is ``(n / 8) C^T I`` for centred codes C. Codes orthogonal to the ranker
and to the codes of other lists never change a score, so this holds for the whole local training, in any order of lists.
"""

import itertools
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor

from fedleak.client.click_models import LONGEST
from fedleak.core.errors import ViewError
from fedleak.core.ranges import PositiveFloat, PositiveInt
from fedleak.core.rankers import HIDDEN, LINEAR, OUTPUT
from fedleak.defenses.manipulation_checks import Distribution, ValueRange
from fedleak.defenses.within_list_checks import EqualScores
from fedleak.server.deviation import Notice
from fedleak.server.feature_manipulation import FeatureManipulation, Model

_SWITCHED_ON = 0.05
"""Input of the hidden unit that carries a list."""
_SWITCHED_OFF = 4.0
"""Least distance below zero of the input of all others; 3 over the output's weight, where that is more."""
_CLICK_VARIANCE = 2 / 9
"""Variance of a click with a probability of a third."""


@dataclass(frozen=True, kw_only=True)
class Codebook(FeatureManipulation):
    """Orthogonal codes, one block for each list of a client, in directions that do not change scores.

    A linear ranker has F - 1 free directions, divided evenly among the lists; a list with fewer than n - 1 directions
    gets a random tight frame. A ranker with H hidden units has F - H directions for each unit: a list activates one
    unit and deactivates all others by a wide margin.

    Args:
        norm: expected L2 norm of the whole update at `learning_rate`; with twice the clients' clip norm nearly every
            update is clipped and uses the full norm (RAIFLE clips at 0.25).
        learning_rate: the clients' local learning rate.
        knows: ``lists``: the server chooses the codes after the client drew the documents of its lists, so that exactly
            these get orthogonal codes; it must cut the lists itself, or see them before it sends features.
            ``candidates``: the server codes all documents of a query, and the client's draw is not used.
        shown: documents in a list.

    Raises:
        ViewError: the ranker has no free direction for some list.

    References:
        This project; it extends RAIFLE's adversarial data manipulation (Pham, Kulkarni and Houmansadr, NDSS 2025,
        arXiv:2310.19163, section III.C).
    """

    name = "codebook"
    does = "codes the documents of a client in directions that change no score, so that its update can be decoded"
    noticed = (
        Notice(
            "client",
            "equal scores of all documents of a list, and values outside the usual range",
            (EqualScores, ValueRange, Distribution),
        ),
    )

    norm: PositiveFloat = 0.5
    learning_rate: PositiveFloat = 0.1
    knows: Literal["lists", "candidates"] = "lists"
    shown: PositiveInt = LONGEST

    def features(self, model: Model, features: Tensor, mask: Tensor, *, generator: Generator) -> Tensor:
        is_linear = LINEAR in model
        codes = self._linear(model[LINEAR], mask, generator) if is_linear else self._neural(model, mask, generator)
        return codes.to(features.dtype) * mask[..., None]

    def _linear(self, ranker: Tensor, mask: Tensor, generator: Generator) -> Tensor:
        _, lists, length = mask.shape
        free = orthogonal_complement(ranker.double()[None], generator)
        blocks = share_out(lists, len(free), length - 1)
        codes = self._codes(mask, blocks, generator)
        return codes @ free[: codes.shape[-1]]

    def _neural(self, model: Model, mask: Tensor, generator: Generator) -> Tensor:
        _, lists, length = mask.shape
        hidden = model[HIDDEN].double()
        output = model[OUTPUT].double()
        free = orthogonal_complement(hidden, generator)
        # As many units, of the largest output weights, as give each list n - 1 directions; one at least.
        needed = max(1, -(-lists * (length - 1) // len(free)))
        units = output.abs().argsort(descending=True)[:needed]
        # List q is carried by one unit; the lists of a unit share its directions.
        carrier = units[torch.arange(lists) % len(units)]
        rank_in_unit = torch.arange(lists) // len(units)
        lists_of_unit = -(-lists // len(units))
        blocks = share_out(lists_of_unit, len(free), length - 1)
        codes = self._codes(mask, [blocks[int(rank)] for rank in rank_in_unit], generator)
        codes = codes @ free[: codes.shape[-1]]
        # The features of least norm for which the carrier is just active and all other units are far from it.
        switched_off = -torch.maximum(torch.tensor(_SWITCHED_OFF), 3 / output.abs().clamp(min=1e-3))
        inputs = switched_off.expand(len(carrier), -1).clone()
        inputs[torch.arange(len(carrier)), carrier] = _SWITCHED_ON
        base = inputs @ torch.linalg.pinv(hidden).T
        # The carrier's row changes by the output's weight times the features, which is divided out.
        sent: Tensor = base[:, None] + codes / output[carrier][:, None, None]
        return sent

    def _codes(self, mask: Tensor, blocks: list[range], generator: Generator) -> Tensor:
        """Codes ``(C, Q, L, D)`` in the free directions, scaled to the expected norm."""
        clients, lists, length = mask.shape
        codes = torch.zeros(clients, lists, length, max(block.stop for block in blocks), dtype=torch.float64)
        for number, block in enumerate(blocks):
            frames = centred_frames(mask[:, number], len(block), generator)
            codes[:, number, :, block.start : block.stop] = frames
        candidates = mask.sum(-1).double()
        documents = candidates.clamp(max=self.shown)
        # A shown document has a code of the same length whether it is one of few candidates or of many.
        codes = codes * (candidates / documents.clamp(min=1)).sqrt()[..., None, None]
        # The update of a list is the learning rate times (n / 8) C^T I.
        gain = self.learning_rate * documents / 8
        # Its expected squared norm, for lists of which a third is clicked; a frame keeps its share of the n - 1
        # directions.
        directions = torch.tensor([len(block) for block in blocks]).minimum(candidates - 1)
        share_of_directions = directions / (documents - 1).clamp(min=1)
        energy = (gain.square() * documents * _CLICK_VARIANCE * share_of_directions).sum(1)
        return codes * (self.norm / energy.clamp(min=1e-12).sqrt())[:, None, None, None]


def share_out(lists: int, directions: int, most: int) -> list[range]:
    """Consecutive directions for each list, divided evenly, at most `most` per list."""
    if directions < lists:
        raise ViewError(f"expected at most {directions} lists per client for codes of this ranker, got {lists}")
    edges = [number * directions // lists for number in range(lists + 1)]
    return [range(start, min(stop, start + most)) for start, stop in itertools.pairwise(edges)]


def orthogonal_complement(rows: Tensor, generator: Generator) -> Tensor:
    """Orthonormal ``(F - K, F)`` directions, random among those orthogonal to ``rows (K, F)``."""
    count, width = rows.shape
    # The first K columns of Q span the rows, the others what random columns have outside of them.
    filling = torch.randn(width, width - count, generator=generator, dtype=rows.dtype)
    columns, _ = torch.linalg.qr(torch.cat([rows.T, filling], dim=1))
    complement: Tensor = columns[:, count:].T
    return complement


def centred_frames(mask: Tensor, width: int, generator: Generator) -> Tensor:
    """Random codes ``(C, L, width)`` whose columns are orthonormal and sum to zero over each list, zero at padding.

    Columns beyond n - 1 are zero for a list of n documents; ``mask (C, L)`` is True for documents, padding comes last.
    """
    clients, length = mask.shape
    draws = torch.randn(clients, length, width, generator=generator, dtype=torch.float64) * mask[..., None]
    documents = mask.sum(1).double().clamp(min=1)
    mean = draws.sum(1, keepdim=True) / documents[:, None, None]
    centred = (draws - mean) * mask[..., None]
    # The nearest matrix with orthonormal columns, U V', without the directions whose singular values are rounding: a
    # centred list of n documents has a rank of n - 1.
    u, singular_values, v_transposed = torch.linalg.svd(centred, full_matrices=False)
    usable = torch.arange(singular_values.shape[1]) < (documents - 1)[:, None]
    frames: Tensor = (u * usable[:, None]) @ v_transposed
    return frames
