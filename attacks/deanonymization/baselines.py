"""Baselines without the deltas: random guesses, and the numbers of examples that devices report."""

import torch
from torch import Tensor

from attacks.deanonymization.estimates import IdentityEstimate, MatchingEstimate, asked_pairs
from attacks.deanonymization.matching import MatchingAttack
from attacks.deanonymization.messages import known_view, owners_of
from attacks.deanonymization.reidentification import IdentityAttack
from protocol.history import History
from protocol.threat_model import ThreatModel
from protocol.view import USERS


class IdentityChance(IdentityAttack):
    """Random guess: all users with equal probability, in random order.

    Threat model: a server that knows who takes part and does not use the messages.

    References:
        Orekondy, Oh, Zhang, Schiele and Fritz, "Gradient-Leaks", 2018, arXiv:1805.05838, section 4.4 (i).
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
    """

    name = "counts-only"
    baseline = True
    threat_model = ThreatModel(
        sees="the number of examples of every device",
        knows="the number of examples on a device of its own of every user",
        needs=("known",),
    )

    def run(self, view: History, *, generator: torch.Generator) -> IdentityEstimate:
        known = known_view(view)
        users, labels = torch.unique(owners_of(known), return_inverse=True)
        distances = _distances(view.example_counts[:, None], known.example_counts)
        sums = torch.zeros(len(distances), len(users), dtype=torch.float64).index_add_(1, labels, distances)
        return IdentityEstimate(scores=-sums / labels.bincount(), users=users)


class MatchingChance(MatchingAttack):
    """Random guess: a uniform number for every pair.

    Threat model: a server that does not use the messages.

    References:
        Orekondy, Oh, Zhang, Schiele and Fritz, "Gradient-Leaks", 2018, arXiv:1805.05838, section 4.4 (i).
    """

    name = "matching-chance"
    baseline = True
    threat_model = ThreatModel(sees="no message", knows="nothing", needs=("pairs",))

    def run(self, view: History, *, generator: torch.Generator) -> MatchingEstimate:
        return MatchingEstimate(scores=torch.rand(len(asked_pairs(view)), generator=generator))


class MatchingCounts(MatchingAttack):
    """Ratio of the numbers of examples, ``-|log n_i - log n_j|``, of both devices.

    Threat model: passive server that sees only how many examples each device reports.

    References:
        This project; see `CountsOnly`.
    """

    name = "matching-counts"
    baseline = True
    threat_model = ThreatModel(sees="the number of examples of every device", knows="nothing", needs=("pairs",))

    def run(self, view: History, *, generator: torch.Generator) -> MatchingEstimate:
        counts = [view.example_counts, *([] if view.known is None else [view.known.example_counts])]
        first, second = torch.cat(counts)[asked_pairs(view).T]
        return MatchingEstimate(scores=-_distances(first, second))


def _distances(first: Tensor, second: Tensor) -> Tensor:
    """Absolute differences of the logarithms."""
    return (first.double().clamp(min=1).log() - second.double().clamp(min=1).log()).abs()
