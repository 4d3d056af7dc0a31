"""What a client can see of an item table before it trains on it: zeros, a rank too low, another model than the last."""

from dataclasses import dataclass

import torch
from torch import Tensor

from protocol.errors import InputError


@dataclass(frozen=True, kw_only=True)
class ProbeCheck:
    """Tells a table that a server made up from an honest one; a client that finds a reason refuses to train.

    Attributes:
        least_singular: smallest singular value, as a share of the largest, below which a table's rank is too low.
        least_size: median norm of the rows, as a share of that of the table before, below which it has shrunk.
        least_likeness: median cosine of the rows with those of the table before, below which it is another model.
    """

    least_singular: float = 1e-3
    least_size: float = 0.5
    least_likeness: float = 0.5

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        for name in ("least_singular", "least_size", "least_likeness"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(
                    expected=f"ProbeCheck.{name} in [0, 1]",
                    found=f"{getattr(self, name):g}",
                    way_out="0 switches that part of the check off.",
                )

    def reasons(self, received: Tensor, before: Tensor | None = None) -> list[str]:
        """Why not to train on a table.

        Args:
            received: ``(I, d)`` item vectors from the server.
            before: ``(I, d)`` those of the client's last round, None in its first.

        Returns:
            Among ``zero rows``, ``low rank``, ``shrunk`` and ``another model``; empty where nothing is wrong.
        """
        norms = received.norm(dim=1)
        singular = torch.linalg.svdvals(received.double())
        found = {
            "zero rows": bool((norms == 0).any()),
            "low rank": bool(singular[-1] <= self.least_singular * singular[0]),
        }
        if before is not None:
            likeness = torch.nn.functional.cosine_similarity(received, before, dim=1).median()
            found["shrunk"] = bool(norms.median() < self.least_size * before.norm(dim=1).median())
            found["another model"] = bool(likeness < self.least_likeness)
        return [reason for reason, holds in found.items() if holds]
