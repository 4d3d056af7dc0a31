"""Lists whose documents the ranker cannot tell apart: the mark of a codebook, ours."""

import torch
from torch import Tensor

from defenses.manipulation_checks.base import Check, Received
from protocol.rankers import ranker_outputs, stack_model

_LEAST = 1e-6
"""Spread beside the usual one below which all spreads are alike: rounding."""


class EqualScores(Check):
    """How many times smaller the spread of scores within a list is than in the reference, as a mean of logarithms.

    A codebook gives all documents of a list one score, by which the update becomes linear in the clicks; real documents
    of a list are scored apart, or there would be nothing to rank. Some real lists hold equal documents.
    """

    name = "equal-scores"

    def statistic(self, received: Received, reference: Received) -> Tensor:
        """See `Check.statistic`; in nats, from far below 0 to ``-log(1e-6)``."""
        usual = score_spread(reference)[reference.mask.any(2)].mean().clamp(min=torch.finfo(torch.float64).tiny)
        smaller = -(score_spread(received) / usual).clamp(min=_LEAST).log()
        lists = received.mask.any(2)
        return (smaller * lists).sum(1) / lists.sum(1).clamp(min=1)


def score_spread(received: Received) -> Tensor:
    """``(C, Q)`` standard deviation of the scores of each list under the global model, 0 for a list without documents.

    Computed in float64: how equal scores are is the question.
    """
    model = {name: value.double() for name, value in received.model.items()}
    scores, _ = ranker_outputs(stack_model(model, len(received.mask)), received.features.double())
    count = received.mask.sum(2).clamp(min=1)
    mean = (scores * received.mask).sum(2) / count
    return (((scores - mean[..., None]) * received.mask).square().sum(2) / count).sqrt()
