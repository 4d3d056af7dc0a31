"""Baselines without the deltas: random guesses, and the numbers of examples that devices report."""

import torch
from torch import Tensor

from fedleak.attacks.re_identification.estimates import IdentityEstimate
from fedleak.attacks.re_identification.messages import known_view, owners_of
from fedleak.attacks.re_identification.reidentification import IdentityAttack
from fedleak.core.history import History
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import USERS


class IdentityChance(IdentityAttack):
    """Random guess: all users with equal probability, in random order.

    Threat model: a server that knows who takes part and does not use the messages.

    References:
        [Orekondy18], section 4.4 (i).

    Example:
        >>> import torch
        >>> from fedleak.attacks.re_identification import IdentityChance
        >>> from fedleak.attacks.re_identification.toy import toy
        >>> view, truth = toy()
        >>> estimate = IdentityChance()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["ap"].mean()), 2)
        0.17
    """

    name = "chance"
    baseline = True
    threat_model = ThreatModel(sees="no message", knows="who takes part", needs=("known",))

    def run(self, view: History, *, generator: torch.Generator) -> IdentityEstimate:
        users = torch.unique(known_view(view).priors[USERS])
        return IdentityEstimate(scores=torch.rand(view.victims, len(users), generator=generator), users=users)


class CountsOnly(IdentityAttack):
    """Ratio of the numbers of examples, ``-|log n - log n_u|``, of a device and of user u's known one.

    Devices report these numbers so that the server can weigh their updates. Where both devices of a user have equally
    many examples, as in the paper's split, they may name the device on their own.

    Threat model: passive server that sees only how many examples each device reports; it has a device of every user.

    References:
        This project.

    Example:
        >>> import torch
        >>> from fedleak.attacks.re_identification import CountsOnly
        >>> from fedleak.attacks.re_identification.toy import toy
        >>> view, truth = toy()
        >>> estimate = CountsOnly()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["ap"].mean()), 2)
        0.08
    """

    name = "counts-only"
    baseline = True
    is_prior = True
    threat_model = ThreatModel(
        sees="the number of examples of every device",
        knows="the number of examples on a device of its own of every user",
        needs=("known",),
    )

    def run(self, view: History, *, generator: torch.Generator) -> IdentityEstimate:
        known_devices = known_view(view)
        users, labels = torch.unique(owners_of(known_devices), return_inverse=True)
        # Mean distance to the known devices of each user.
        distances = count_distances(view.example_counts[:, None], known_devices.example_counts)
        sums = torch.zeros(len(distances), len(users), dtype=torch.float64).index_add_(1, labels, distances)
        return IdentityEstimate(scores=-sums / labels.bincount(), users=users)


def count_distances(first: Tensor, second: Tensor) -> Tensor:
    """Absolute differences of the logarithms of numbers of examples."""
    return (first.double().clamp(min=1).log() - second.double().clamp(min=1).log()).abs()
