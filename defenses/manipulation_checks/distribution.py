"""Whether the values of a column have the distribution that peers' values have."""

from typing import Literal

import torch
from torch import Tensor

from defenses.manipulation_checks.base import Check, Received


class Distribution(Check):
    """Two-sample Kolmogorov-Smirnov statistics of the columns, against the documents of the reference.

    Each is multiplied by ``sqrt(n m / (n + m))``, by which clients of n documents can be compared with one another.
    Documents of a list depend on one another, so no p-value is made of it: the threshold is calibrated.

    Args:
        combined: the ``mean`` over the columns, or the ``largest``, which is the column of the smallest p-value.
    """

    name = "distribution"

    def __init__(self, *, combined: Literal["mean", "largest"] = "mean") -> None:
        if combined not in ("mean", "largest"):
            raise ValueError(f"expected combined 'mean' or 'largest', got {combined!r}")
        self.combined = combined

    def statistic(self, received: Received, reference: Received) -> Tensor:
        """See `Check.statistic`."""
        documents = reference.documents()
        count = received.mask.flatten(1).sum(1).double()
        scale = (count * len(documents) / (count + len(documents))).sqrt()
        distance = kolmogorov_smirnov(received, documents) * scale[:, None]
        return distance.mean(1) if self.combined == "mean" else distance.amax(1)


def kolmogorov_smirnov(received: Received, documents: Tensor) -> Tensor:
    """Largest distance between the empirical distribution of each client's column and the reference's.

    Between two of the client's values its own distribution is flat and the other one rises, so the largest distance
    is at one of the client's values, or just before one.

    Args:
        received: what the clients received.
        documents: ``(M, F)``.

    Returns:
        ``(C, F)`` in [0, 1].
    """
    values, mask = received.columns()
    count = mask.sum(2, keepdim=True).clamp(min=1)
    own = values.masked_fill(~mask, torch.inf).sort(2).values.contiguous()
    by_column = own.transpose(0, 1).contiguous()
    peers = documents.T.sort(1).values.contiguous()
    distances = []
    for right in (True, False):
        below = torch.searchsorted(own, own, right=right) / count.double()
        peers_below = torch.searchsorted(peers, by_column.flatten(1), right=right).double() / len(documents)
        distances.append((below - peers_below.reshape(by_column.shape).transpose(0, 1)).abs())
    # Padding was sorted to the end.
    real = torch.arange(own.shape[2]) < mask.sum(2, keepdim=True)
    return torch.stack(distances).amax(0).masked_fill(~real, 0).amax(2)
