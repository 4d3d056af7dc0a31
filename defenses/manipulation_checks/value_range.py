"""Values that no honest document has."""

from torch import Tensor

from defenses.manipulation_checks.base import Check, Received


class ValueRange(Check):
    """Share of a client's values that lie outside of what the reference has in their column."""

    name = "range"

    def statistic(self, received: Received, reference: Received) -> Tensor:
        """See `Check.statistic`; in [0, 1]."""
        documents = reference.documents()
        outside = (received.features < documents.amin(0)) | (received.features > documents.amax(0))
        values = received.mask.flatten(1).sum(1).clamp(min=1) * documents.shape[1]
        return (outside & received.mask[..., None]).flatten(1).sum(1).double() / values
