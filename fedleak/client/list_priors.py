"""Laws of the clicks in ranked lists, as an adversary without the update may know them."""

from typing import Literal

from torch import Tensor

from fedleak.client.click_models import cascade_log_law, count_log_law, steps_for_law, uniform_log_law
from fedleak.client.foltr_es import FOLtRESAlgorithm
from fedleak.client.ranking import RankingAlgorithm

ListPrior = Literal["uniform", "count", "cascade"]


def log_prior(kind: ListPrior, mask: Tensor, learner: RankingAlgorithm) -> Tensor:
    """``(V, Q, 2^L)`` log probability of every click pattern of every list.

    Args:
        kind: ``uniform``: all patterns that can be sent are equally likely. ``count``: the distribution of the number
            of clicks in a list is known. ``cascade``: the click model, the distribution of the grades and the displayed
            order are known.
        mask: ``(V, Q, L)`` True for documents in displayed order.
        learner: names the click model and the distribution of the grades.
    """
    # Metrics are sent for every list, updates only for those with some but not all documents clicked.
    every = isinstance(learner, FOLtRESAlgorithm)
    if kind == "uniform":
        return uniform_log_law(mask, every=every)
    steps = steps_for_law(learner.click_model, learner.grade_law, mask.shape[-1])
    law = cascade_log_law if kind == "cascade" else count_log_law
    return law(steps, mask, every=every)
