"""How a server goes about a secure aggregate: whom it singles out, and what it sends the others."""

from dataclasses import dataclass

from attacks.manipulation.base import Manipulation
from attacks.manipulation.targeted import Others, Targeted
from defenses.base import Defense
from defenses.secure_aggregation import SecureAggregation
from defenses.secure_sum import SecureSum


@dataclass(frozen=True)
class Aggregate:
    """A way to attack secure aggregation.

    Attributes:
        targets: clients of each aggregate whom the server reads; 0 for RAIFLE's setting, where every client is the only
            target of an aggregate of its own whose others train on zeros: they add nothing but noise.
        share: fraction of the features that the targets' blocks take together.
        others: what the other clients get, see `Targeted`.
    """

    targets: int
    share: float = 1.0
    others: Others = "silenced"

    def manipulation(self, inner: Manipulation | None, participants: int) -> Manipulation | None:
        """What the server sends to the clients of a cohort."""
        if not self.targets or inner is None:
            return inner
        return Targeted(inner, participants=participants, targets=self.targets, share=self.share, others=self.others)

    def defense(self, participants: int, noise_scale: float) -> Defense:
        """The aggregation, given the noise of each participant."""
        if not self.targets:
            return SecureAggregation(participants=participants, noise_scale=noise_scale)
        return SecureSum(participants=participants, targets=self.targets, noise_scale=noise_scale)


AGGREGATES = {
    "noise-only": Aggregate(0),
    "one-target": Aggregate(1, share=0.5),
    "two-targets": Aggregate(2, share=1.0),
    "honest-others": Aggregate(1, share=1.0, others="honest"),
}
"""In all but the first, every participant trains on real documents and clicks, and its update is in the sum."""
