"""A check of what clients receive."""

from torch import Tensor

from fedleak.defenses.manipulation_checks import Check, Received


class LargestValue(Check):
    """The largest value that a client received, relative to the reference's: detects scaled features."""

    name = "largest-value"

    def statistic(self, received: Received, reference: Received) -> Tensor:
        return received.features.abs().flatten(1).amax(1) / reference.documents().abs().max()
