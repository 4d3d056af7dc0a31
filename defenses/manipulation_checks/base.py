"""Whether the features that a server sent were manipulated: what a client can compute (RAIFLE, section VII.D.2)."""

import abc
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from protocol.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Received:
    """What some clients have when they have received a round, before anything is clicked.

    Attributes:
        features: ``(C, Q, L, F)`` as sent, in displayed order, zero where padded.
        mask: ``(C, Q, L)`` True for documents.
        model: the global model that came with them, ``shape`` each.
    """

    features: Tensor
    mask: Tensor
    model: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        """Refuses shapes that do not fit."""
        if self.features.dim() != 4 or self.mask.shape != self.features.shape[:3]:
            raise InputError(
                expected="features (C, Q, L, F) and mask (C, Q, L)",
                found=f"{tuple(self.features.shape)} and {tuple(self.mask.shape)}",
                way_out="Arrange a recording's view with attacks.ranking.lists.ranked_lists.",
            )

    def of(self, clients: Tensor) -> "Received":
        """What the chosen clients received; `clients` are positions, or a mask ``(C,)``."""
        return Received(features=self.features[clients], mask=self.mask[clients], model=self.model)

    def documents(self) -> Tensor:
        """``(M, F)`` the documents of all clients together."""
        return self.features[self.mask]

    def columns(self) -> tuple[Tensor, Tensor]:
        """Each client's values by column, ``(C, F, Q L)``, and which of the places hold a document, ``(C, 1, Q L)``."""
        return self.features.flatten(1, 2).transpose(1, 2).contiguous(), self.mask.flatten(1)[:, None]


class Check(abc.ABC):
    """A statistic that is larger where features look less like those of a reference.

    The reference is a public sample of honest features: what peers received, or the client itself in rounds before. A
    server that manipulates what everybody receives, from the first round on, spoils it, and no check sees anything.

    Attributes:
        name: the name under which results are written.
    """

    name: ClassVar[str]

    @final
    def __call__(self, received: Received, reference: Received) -> Tensor:
        """The statistic of each client.

        Args:
            received: what the clients to judge received.
            reference: what honest clients received, with the same model.

        Returns:
            ``(C,)`` float64, higher is more suspicious; the smallest number there is for a client without documents.

        Raises:
            InputError: the reference is empty or has other features.
        """
        documents = reference.documents()
        if not len(documents) or documents.shape[1] != received.features.shape[-1]:
            raise InputError(
                expected=f"a reference of documents with {received.features.shape[-1]} features",
                found=f"{len(documents)} documents with {documents.shape[1]}",
                way_out="Give what honest clients of the same training received.",
            )
        statistic = self.statistic(received, reference).double()
        return statistic.where(received.mask.flatten(1).any(1), torch.finfo(torch.float64).min)

    @abc.abstractmethod
    def statistic(self, received: Received, reference: Received) -> Tensor:
        """The statistic itself, ``(C,)``; `__call__` has checked the reference."""


def threshold(honest: Tensor, false_positives: float = 0.05) -> float:
    """The value above which a client is flagged.

    The ``ceil((1 - false_positives) (H + 1))``-th smallest of the honest statistics: a further honest client, drawn as
    these were, exceeds it with probability at most `false_positives`, whatever the law (split conformal prediction,
    Vovk et al. 2005).

    Args:
        honest: ``(H,)`` statistics of honest clients that are neither in the reference nor judged.
        false_positives: share of honest clients that may be flagged.

    Raises:
        InputError: there are too few honest clients for that share.
    """
    if not 0 < false_positives < 1:
        raise InputError(
            expected="false_positives between 0 and 1", found=f"{false_positives:g}", way_out="0.05 is usual."
        )
    # Rounded before it is rounded up: 0.95 * 20 is a hair more than 19 in binary.
    rank = math.ceil(round((1 - false_positives) * (len(honest) + 1), 9))
    if rank > len(honest):
        raise InputError(
            expected=f"at least {math.ceil(round(1 / false_positives, 9)) - 1} honest clients to calibrate on",
            found=str(len(honest)),
            way_out="Calibrate on more clients, or allow more false positives.",
        )
    return float(honest.double().sort().values[rank - 1])
