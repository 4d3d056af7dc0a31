"""The degree of randomness in the features (RAIFLE, section VII.D.2: "e.g., via Shannon entropy")."""

import torch
from torch import Tensor

from defenses.manipulation_checks.base import Check, Received


class Entropy(Check):
    """How far the entropy of a client's columns lies from that of its peers, as a mean over the columns.

    The entropy of a small sample is biased downwards, so it is compared with that of other single clients.

    Args:
        bins: bins between the reference's smallest and largest value of a column; there is one more on either side.
    """

    name = "entropy"

    def __init__(self, *, bins: int = 10) -> None:
        if bins < 1:
            raise ValueError(f"expected bins of at least 1, got {bins}")
        self.bins = bins

    def statistic(self, received: Received, reference: Received) -> Tensor:
        """See `Check.statistic`; in nats."""
        documents = reference.documents()
        low, high = documents.amin(0), documents.amax(0)
        usual = column_entropy(reference, low, high, self.bins)[reference.mask.flatten(1).any(1)].mean(0)
        return (column_entropy(received, low, high, self.bins) - usual).abs().mean(1)


def column_entropy(received: Received, low: Tensor, high: Tensor, bins: int) -> Tensor:
    """Shannon entropy of the histogram of each client's columns.

    Args:
        received: what the clients received.
        low: ``(F,)`` lower end of the bins, which are as wide as one another.
        high: ``(F,)`` upper end, which belongs to the last bin.
        bins: bins between the two; what lies beyond either end has a bin of its own.

    Returns:
        ``(C, F)`` in nats.
    """
    values, documents = received.columns()
    low, high = low[:, None], high[:, None]
    width = (high - low).clamp(min=torch.finfo(values.dtype).tiny)
    inside = ((values - low) / width * bins).clamp(0, bins - 1).long() + 1
    place = inside.where(values >= low, 0).where(values <= high, bins + 1)
    counts = values.new_zeros(*values.shape[:2], bins + 2, dtype=torch.float64)
    counts.scatter_add_(2, place, documents.double().expand(place.shape))
    shares: Tensor = torch.special.entr(counts / documents.sum(2, keepdim=True).clamp(min=1))
    return shares.sum(2)
