"""Exact posterior of the clicks given a metric that clients share for all their lists.

The lists are independent a priori, and a list affects the sum only through its metric. The posterior of a list
therefore needs the law of the sum over all other lists: messages passed forward and backward along the lists.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.ranking.priors import PosteriorAttack
from fedleak.client.click_models import patterns
from fedleak.client.foltr_es import LEVELS, UTILITY, FOLtRESAlgorithm, levels, response_law, units
from fedleak.client.list_priors import ListPrior, log_prior
from fedleak.client.ranked_lists import Lists
from fedleak.client.ranking import RankingAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.ranges import PositiveInt
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView


@dataclass(frozen=True, kw_only=True)
class MetricPosterior(PosteriorAttack):
    """Exact posterior over click patterns given one or two numbers over all of a client's lists.

    It is optimal: no attack with the same prior infers more of the clicks, because nothing else depends on them.

    Threat model: a passive server. From the seed that it shares with a client it knows the perturbed ranker, and
    the order of every list.

    Raises:
        ViewError: the clients do not share a metric, or their lists cannot be divided by the numbers sent.

    References:
        This project; the metrics are those of [Kharitonov19].

    Example:
        >>> import torch
        >>> from fedleak.attacks.ranking import MetricPosterior
        >>> from fedleak.attacks.ranking.toy import toy
        >>> view, truth = toy("metrics")
        >>> estimate = MetricPosterior()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].nanmean()), 2)
        0.77
    """

    name = "metric-posterior"
    with_prior = "posterior"
    threat_model = ThreatModel(
        sees="the one or two numbers that each client shares, and its displayed lists, which follow from the seed",
        knows="the metric and its randomised response; nothing about the clicks (uniform prior), or the click model",
        needs=("served", "lists", FOLtRESAlgorithm, f"deltas:{UTILITY}"),
    )

    prior: ListPrior = "cascade"
    victims_at_once: PositiveInt | None = 8

    def marginals(self, view: RoundView, lists: Lists, chunk: Tensor, generator: torch.Generator) -> Tensor:
        learner = view.require(RankingAlgorithm)
        metric = view.require(FOLtRESAlgorithm)
        if lists.mask.shape[1] % metric.numbers:
            raise ViewError(f"expected lists in {metric.numbers} equal parts, got {lists.mask.shape[1]}")
        # Each number that a client sends is the mean over a part of its lists: parts are treated as clients.
        mask = lists.mask[chunk].reshape(len(chunk) * metric.numbers, -1, lists.mask.shape[2])
        prior = log_prior(self.prior, mask, learner).double().exp()
        shared = view.deltas[UTILITY][chunk].double().flatten()
        return click_posterior(prior, shared, metric).reshape(lists.mask[chunk].shape)


def click_posterior(prior: Tensor, shared: Tensor, learner: FOLtRESAlgorithm) -> Tensor:
    """``(B, Q, L)`` click probabilities given the mean of the lists' metrics; the prior's if that is impossible.

    ``prior (B, Q, 2^L)`` has the probability of every pattern of every list, ``shared (B,)`` are the reported means.
    """
    length = int(prior.shape[-1]).bit_length() - 1  # of 2^L patterns
    codes = patterns(length).to(prior)
    # p(answer | pattern) is that of the metric's level, after the randomised response.
    level = torch.nn.functional.one_hot(levels(learner.metric, codes), LEVELS).to(prior)
    response = response_law(learner.truthful)
    law_of_answers = prior @ level @ response
    # Likelihood of the report for each answer, then for each level, then for each pattern of that level.
    evidence = _evidence(law_of_answers, shared, learner) @ response.T
    weights = prior * (evidence @ level.T)
    total = weights.sum(-1, keepdim=True)
    posterior: Tensor = torch.where(total > 0, weights / total.clamp(min=1e-300), prior) @ codes
    return posterior


def _evidence(answers: Tensor, shared: Tensor, learner: FOLtRESAlgorithm) -> Tensor:
    """``(B, Q, LEVELS)`` likelihood of the reported means ``(B,)`` for each answer of each list, given their law."""
    steps, unit = units(learner.metric)
    count, lists = answers.shape[:2]
    # The reported mean as a whole number of units over all lists.
    largest = lists * unit
    reported = (shared * lists * unit).round().long().clamp(0, largest)
    start = torch.zeros(count, largest + 1, dtype=answers.dtype)
    # before[q][t]: law of the sum t before list q; rest[t]: likelihood of the reported sum given the sum t so far.
    before = [start.clone().index_fill_(1, torch.tensor([0]), 1.0)]
    for number in range(lists - 1):
        before.append(_carry(before[-1], answers[:, number], steps.tolist()))
    rest = start.scatter(1, reported[:, None], 1.0)
    likelihoods = torch.zeros_like(answers)
    for number in reversed(range(lists)):
        # The sum t before the list becomes t + step with the answer.
        for answer, step in enumerate(steps.tolist()):
            reachable = before[number][:, : rest.shape[1] - step]
            likelihoods[:, number, answer] = (reachable * rest[:, step:]).sum(1)
        # Backward, the same recursion runs from the largest sum down.
        rest = _carry(rest.flip(1), answers[:, number], steps.tolist()).flip(1)
    return likelihoods


def _carry(mass: Tensor, answers: Tensor, steps: list[int]) -> Tensor:
    """The law of the sum ``(B, T)`` after adding one list's answer ``(B, LEVELS)``."""
    moved = torch.zeros_like(mass)
    for answer, step in enumerate(steps):
        moved[:, step:] += mass[:, : mass.shape[1] - step] * answers[:, answer, None]
    return moved
