"""Baselines of composition attacks: random shares, and equal counts of all classes."""

import torch

from fedleak.attacks.composition.base import CompositionAttack, certain
from fedleak.attacks.composition.counts import CountAttack, CountEstimate, count_estimate
from fedleak.attacks.composition.estimates import CompositionEstimate
from fedleak.client.last_layer import output_layer
from fedleak.core.largest_remainders import largest_remainders
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView


class RandomGuess(CompositionAttack):
    """Random guess: independent uniform numbers for all classes, normalised.

    Threat model: a server that knows the classes and does not use the update.

    References:
        [Dai24], section IV; the paper does not define its random guess.

    Example:
        >>> import torch
        >>> from fedleak.attacks.composition import RandomGuess
        >>> from fedleak.attacks.composition.toy import toy
        >>> view, truth = toy()
        >>> estimate = RandomGuess()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["l1"].mean()), 2)
        1.0
    """

    name = "random-guess"
    baseline = True
    threat_model = ThreatModel(sees="no update", knows="the number of classes", needs=("deltas",))

    def estimate(self, view: RoundView, *, generator: torch.Generator) -> CompositionEstimate:
        classes = view.deltas[f"{output_layer(view)}.bias"].shape[1]
        guess = torch.rand(view.victims, classes, generator=generator, dtype=torch.float64)
        return certain(guess, torch.ones(guess.shape, dtype=torch.bool))


class EqualCounts(CountAttack):
    """Baseline: as many examples of each class as of any other.

    Threat model: a server that knows the classes and the example counts, and does not use the update.

    References:
        This project.

    Example:
        >>> import torch
        >>> from fedleak.attacks.composition import EqualCounts
        >>> from fedleak.attacks.composition.toy import toy
        >>> view, truth = toy()
        >>> estimate = EqualCounts()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["l1"].mean()), 2)
        0.99
    """

    name = "equal-counts"
    baseline = True
    threat_model = ThreatModel(
        sees="no update",
        knows="the number of classes, and how many examples the client reports",
        needs=("deltas",),
    )

    def estimate(self, view: RoundView, *, generator: torch.Generator) -> CountEstimate:
        classes = view.deltas[f"{output_layer(view)}.bias"].shape[1]
        equal = torch.full((view.victims, classes), 1 / classes, dtype=torch.float64)
        return count_estimate(largest_remainders(equal, view.example_counts), shares=equal)
