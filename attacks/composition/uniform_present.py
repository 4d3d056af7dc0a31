"""Equal shares of the classes that Decaf's rule calls present."""

from dataclasses import dataclass

import torch

from fedleak.attacks.composition.base import CompositionAttack, certain
from fedleak.attacks.composition.decaf import published_present
from fedleak.attacks.composition.estimates import CompositionEstimate
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView


@dataclass(frozen=True, kw_only=True)
class UniformPresent(CompositionAttack):
    """Equal shares of the classes present under Decaf's published rule: what its second step infers alone.

    It reads the signs of the last layer's update and nothing else. Where each client has one class, it is exact.

    Threat model: passive server, one round.

    References:
        [Dai24], Algorithm 1.

    Example:
        >>> import torch
        >>> from fedleak.attacks.composition import UniformPresent
        >>> from fedleak.attacks.composition.toy import toy
        >>> view, truth = toy()
        >>> estimate = UniformPresent()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["l1"].mean()), 2)
        0.74
    """

    name = "uniform-present"
    references = ("Dai24, Algorithm 1",)
    threat_model = ThreatModel(
        sees="the update of the last layer",
        knows="the class of each row, and for a threshold the clients' learning rate",
        needs=("deltas",),
    )

    threshold: float = 0.0

    def estimate(self, view: RoundView, *, generator: torch.Generator) -> CompositionEstimate:
        present = published_present(view, "published", self.threshold)
        return certain(present.double(), present)
