"""Baselines of matching without the deltas: random guesses, and the numbers of examples that devices report."""

import torch

from attacks.matching.estimates import MatchingEstimate, asked_pairs
from attacks.matching.same_user import MatchingAttack
from attacks.re_identification.baselines import count_distances
from protocol.history import History
from protocol.threat_model import ThreatModel


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
        return MatchingEstimate(scores=-count_distances(first, second))
