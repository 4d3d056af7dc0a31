"""What any attack on compositions must beat."""

import torch

from attacks.base import Attack, CompositionEstimate, ServerView, ThreatModel
from attacks.composition.null_classes import published_present
from attacks.composition.rounds import certain


class RandomGuess(Attack):
    """Independent uniform numbers for all classes, normalised; the paper does not say how it guesses.

    Threat model: a server that knows the classes and looks at no update.
    """

    name = "random-guess"
    threat_model = ThreatModel(sees="nothing of the client", knows="which classes there are", needs=("learner",))
    estimates = CompositionEstimate

    def run(self, view: ServerView, *, generator: torch.Generator) -> CompositionEstimate:
        """See `Attack.run`."""
        classes = view.model[f"{view.classifier().output_layer}.bias"].shape[0]
        guess = torch.rand(view.victims, classes, generator=generator, dtype=torch.float64)
        return certain(guess, torch.ones(guess.shape, dtype=torch.bool))


class UniformPresent(Attack):
    """Equal shares of the classes that the published rule calls present: all that Decaf's second step alone tells.

    Threat model: passive server, one round.

    Args:
        threshold: of the published rule.
    """

    name = "uniform-present"
    threat_model = ThreatModel(
        sees="the update of the last layer", knows="which row belongs to which class", needs=("learner", "deltas")
    )
    estimates = CompositionEstimate

    def __init__(self, *, threshold: float = 0.0) -> None:
        self.threshold = threshold

    def run(self, view: ServerView, *, generator: torch.Generator) -> CompositionEstimate:
        """See `Attack.run`."""
        present = published_present(view, "published", self.threshold)
        return certain(present.double(), present)
