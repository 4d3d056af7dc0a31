"""The corrected null-class rule by itself."""

import torch

from attacks.base import Attack, CompositionEstimate, ServerView, ThreatModel
from attacks.composition.decaf_match import DecafMatch
from attacks.composition.rounds import certain
from attacks.composition.view import AUXILIARY


class UniformCorrected(Attack):
    """Equal shares of the classes that the corrected rule calls present; ours, beside `UniformPresent`.

    Clients are simulated of which it is known what they lack. The known decay of weights is taken out of every change,
    and the largest or the mean entry of a class's row, whichever tells the simulated null classes better, is compared
    with the threshold that makes the fewest errors among them. It needs no non-negative activation and no optimizer
    without decay; but it is right only as often as the simulations are like the clients.

    Threat model: passive server, one round; knows the clients' training algorithm and the number of their examples, and
    has a few images of each class.

    Args:
        shared: simulated clients for all victims together.
    """

    name = "uniform-corrected"
    threat_model = ThreatModel(
        sees="the update of the last layer, the global model and how many examples the client reports",
        knows="the clients' training algorithm and labelled images of every class that no client has",
        needs=("learner", "deltas", *AUXILIARY),
    )
    estimates = CompositionEstimate

    def __init__(self, *, shared: int = 40) -> None:
        self.rule = DecafMatch(shared=shared, passes=0, probes=1, null_classes="corrected")

    def run(self, view: ServerView, *, generator: torch.Generator) -> CompositionEstimate:
        """See `Attack.run`."""
        present = self.rule.estimate(view, generator=generator).present
        return certain(present.double(), present)
