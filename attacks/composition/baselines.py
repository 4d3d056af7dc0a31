"""Baselines of attacks on compositions: random shares, and equal shares of the classes called present."""

from dataclasses import dataclass

import torch

from attacks.composition.base import AUXILIARY, CompositionAttack, certain
from attacks.composition.decaf_match import DecafMatch
from attacks.composition.null_classes import published_present
from attacks.estimates import CompositionEstimate
from protocol.simulators import ClassifierSimulator
from protocol.threat_model import ThreatModel
from protocol.view import ServerView
from ranges import PositiveInt


class RandomGuess(CompositionAttack):
    """Independent uniform numbers for all classes, normalised; the paper does not say how it guesses.

    Threat model: a server that knows the classes and looks at no update.
    """

    name = "random-guess"
    baseline = True
    threat_model = ThreatModel(
        sees="nothing of the client", knows="which classes there are", needs=("learner:ClassifierSimulator",)
    )

    def estimate(self, view: ServerView, *, generator: torch.Generator) -> CompositionEstimate:
        classes = view.model[f"{view.require(ClassifierSimulator).output_layer}.bias"].shape[0]
        guess = torch.rand(view.victims, classes, generator=generator, dtype=torch.float64)
        return certain(guess, torch.ones(guess.shape, dtype=torch.bool))


@dataclass(frozen=True, kw_only=True)
class UniformPresent(CompositionAttack):
    """Equal shares of the classes that the published rule calls present: all that Decaf's second step alone infers.

    Threat model: passive server, one round.

    Args:
        threshold: of the published rule.
    """

    name = "uniform-present"
    baseline = True
    threat_model = ThreatModel(
        sees="the update of the last layer",
        knows="which row belongs to which class",
        needs=("learner:ClassifierSimulator", "deltas"),
    )

    threshold: float = 0.0

    def estimate(self, view: ServerView, *, generator: torch.Generator) -> CompositionEstimate:
        present = published_present(view, "published", self.threshold)
        return certain(present.double(), present)


@dataclass(frozen=True, kw_only=True)
class UniformCorrected(CompositionAttack):
    """Equal shares of the classes that the corrected rule calls present, to be compared with `UniformPresent`.

    Clients are simulated of which it is known what they lack. The known decay of weights is taken out of every change,
    and the largest or the mean entry of a class's row, whichever separates the simulated null classes better, is
    compared with the threshold that makes the fewest errors among them. It needs no non-negative activation and no
    optimizer without decay; but it is right only as often as the simulations are like the clients.

    Threat model: passive server, one round; knows the clients' training algorithm and the number of their examples, and
    has a few images of each class.

    Args:
        shared: simulated clients for all victims together.
    """

    name = "uniform-corrected"
    cost = "`shared` simulated trainings"
    threat_model = ThreatModel(
        sees="the update of the last layer, the global model and how many examples the client reports",
        knows="the clients' training algorithm and labelled images of every class that no client has",
        needs=("learner:ClassifierSimulator", "deltas", *AUXILIARY),
    )

    shared: PositiveInt = 40

    def estimate(self, view: ServerView, *, generator: torch.Generator) -> CompositionEstimate:
        rule = DecafMatch(shared=self.shared, passes=0, probes=1, null_classes="corrected")
        present = rule.estimate(view, generator=generator).present
        return certain(present.double(), present)
