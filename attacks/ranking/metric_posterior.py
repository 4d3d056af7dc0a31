"""Exact posterior of the clicks given a metric that clients share of all their lists.

The lists are independent beforehand, and a list bears on the sum through its metric only. So the posterior of a list
needs the law of the sum of all others: messages along the lists, forward from the first and backward from the last.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.ranking.lists import Lists
from attacks.ranking.priors import ListPrior, PosteriorAttack, log_prior
from protocol.click_models import patterns
from protocol.list_metrics import LEVELS, UTILITY, levels, response_law, units
from protocol.simulators import MetricSimulator, RankingSimulator
from protocol.threat_model import ThreatModel
from protocol.view import ServerView, ViewError
from ranges import PositiveInt


@dataclass(frozen=True, kw_only=True)
class MetricPosterior(PosteriorAttack):
    """Posterior over click patterns given one number, or two, over all of a client's lists.

    No attack that has the same prior infers more of the clicks: nothing else depends on them.

    Threat model: a passive server. From the seed that it shares with a client it knows the perturbed ranker, and so
    the order of every list.

    Args:
        prior: what is believed of the clicks beforehand; see `log_prior`.
        victims_at_once: bounds the memory.

    Raises:
        ViewError: the clients do not share a metric, or their lists do not divide by the numbers sent.
    """

    name = "metric-posterior"
    threat_model = ThreatModel(
        sees="the number or two that each client shares, and the lists it was shown, which follow from the seed",
        knows="the metric and how it is randomised; nothing of the clicks (uniform prior), or click model and grades",
        needs=("served", "lists", "learner:MetricSimulator", f"deltas:{UTILITY}"),
    )

    prior: ListPrior = "cascade"
    victims_at_once: PositiveInt | None = 8

    def marginals(self, view: ServerView, lists: Lists, chunk: Tensor, generator: torch.Generator) -> Tensor:
        learner, metric = view.require(RankingSimulator), view.require(MetricSimulator)
        if lists.mask.shape[1] % metric.numbers:
            raise ViewError(f"expected lists in {metric.numbers} equal parts, got {lists.mask.shape[1]}")
        mask = lists.mask[chunk].reshape(len(chunk) * metric.numbers, -1, lists.mask.shape[2])
        prior = log_prior(self.prior, mask, learner).double().exp()
        shared = view.deltas[UTILITY][chunk].double().flatten()
        return click_posterior(prior, shared, metric).reshape(lists.mask[chunk].shape)


def click_posterior(prior: Tensor, shared: Tensor, learner: MetricSimulator) -> Tensor:
    """Click probabilities given the mean of the lists' metrics.

    Args:
        prior: ``(B, Q, 2^L)`` probability of every pattern of every list.
        shared: ``(B,)`` what was told.
        learner: the metric, and how truthfully a list's is told.

    Returns:
        ``(B, Q, L)``; the prior's where no clicks give what was told.
    """
    codes = patterns(int(prior.shape[-1]).bit_length() - 1).to(prior)
    level = torch.nn.functional.one_hot(levels(learner.metric, codes), LEVELS).to(prior)
    response = response_law(learner.truthful)
    evidence = _evidence(prior @ level @ response, shared, learner) @ response.T
    weights = prior * (evidence @ level.T)
    total = weights.sum(-1, keepdim=True)
    posterior: Tensor = torch.where(total > 0, weights / total.clamp(min=1e-300), prior) @ codes
    return posterior


def _evidence(answers: Tensor, shared: Tensor, learner: MetricSimulator) -> Tensor:
    """``(B, Q, LEVELS)`` probability of what was told, given each answer of each list.

    Args:
        answers: ``(B, Q, LEVELS)`` law of each list's answer.
        shared: ``(B,)`` means over the lists.
        learner: the metric.
    """
    steps, one = units(learner.metric)
    count, lists = answers.shape[:2]
    told = (shared * lists * one).round().long().clamp(0, lists * one)
    start = torch.zeros(count, lists * one + 1, dtype=answers.dtype)
    # before[q][t]: the lists before q make t; rest[t]: the lists after q bring t to what was told.
    before = [start.clone().index_fill_(1, torch.tensor([0]), 1.0)]
    for number in range(lists - 1):
        before.append(_carry(before[-1], answers[:, number], steps.tolist()))
    rest = start.scatter(1, told[:, None], 1.0)
    found = torch.zeros_like(answers)
    for number in reversed(range(lists)):
        for answer, step in enumerate(steps.tolist()):
            found[:, number, answer] = (before[number][:, : rest.shape[1] - step] * rest[:, step:]).sum(1)
        rest = _carry(rest.flip(1), answers[:, number], steps.tolist()).flip(1)
    return found


def _carry(mass: Tensor, answers: Tensor, steps: list[int]) -> Tensor:
    """The law of the sum ``(B, T)`` with one more list's answer ``(B, LEVELS)`` in it."""
    moved = torch.zeros_like(mass)
    for answer, step in enumerate(steps):
        moved[:, step:] += mass[:, : mass.shape[1] - step] * answers[:, answer, None]
    return moved
