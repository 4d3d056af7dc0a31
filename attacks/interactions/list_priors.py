"""What an adversary may believe of clicks before it looks at an update: three threat models, never mixed."""

from typing import Literal

from torch import Tensor

from attacks.base import RankingLearner
from attacks.interactions.click_patterns import cascade_log_law, count_log_law, steps_for_law, uniform_log_law
from attacks.interactions.list_metrics import MetricLearner

ListPrior = Literal["uniform", "count", "cascade"]


def log_prior(kind: ListPrior, mask: Tensor, learner: RankingLearner) -> Tensor:
    """Log probability of every click pattern of every list.

    Args:
        kind: ``uniform``: nothing is known, every pattern that can be sent is as likely as another. ``count``: the law
            of the number of clicks in a list is known. ``cascade``: the click model, the frequency of the grades and
            the displayed order are known.
        mask: ``(V, Q, L)`` True for documents in displayed order.
        learner: names the click model and the frequency of the grades.

    Returns:
        ``(V, Q, 2^L)``.
    """
    # A metric is told of every list; an update only of those that teach something.
    every = isinstance(learner, MetricLearner)
    if kind == "uniform":
        return uniform_log_law(mask, every=every)
    steps = steps_for_law(learner.click_model, learner.grade_law, mask.shape[-1])
    law = cascade_log_law if kind == "cascade" else count_log_law
    return law(steps, mask, every=every)
