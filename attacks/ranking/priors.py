"""Priors of clicks, attacks that infer click probabilities under one, and the baseline that uses nothing else."""

import abc
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from attacks.base import Attack
from attacks.estimates import InteractionEstimate
from attacks.ranking.lists import Lists, ranked_lists
from protocol.click_models import cascade_log_law, count_log_law, patterns, steps_for_law, uniform_log_law
from protocol.progress import counted
from protocol.simulators import MetricSimulator, RankingSimulator
from protocol.threat_model import ThreatModel
from protocol.view import ServerView
from ranges import PositiveInt

ListPrior = Literal["uniform", "count", "cascade"]


def log_prior(kind: ListPrior, mask: Tensor, learner: RankingSimulator) -> Tensor:
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
    # A metric is sent of every list; an update only of those from which the client learns.
    every = isinstance(learner, MetricSimulator)
    if kind == "uniform":
        return uniform_log_law(mask, every=every)
    steps = steps_for_law(learner.click_model, learner.grade_law, mask.shape[-1])
    law = cascade_log_law if kind == "cascade" else count_log_law
    return law(steps, mask, every=every)


@dataclass(frozen=True, kw_only=True)
class PosteriorAttack(Attack):
    """An attack that infers click probabilities under a prior, some victims at a time. A subclass gives `marginals`.

    Args:
        prior: what is believed of the clicks beforehand; see `log_prior`.
        victims_at_once: bounds the memory; None for all.
    """

    family = "ranking"

    prior: ListPrior
    victims_at_once: PositiveInt | None = None

    def run(self, view: ServerView, *, generator: torch.Generator) -> InteractionEstimate:
        lists = ranked_lists(view)
        chunks = torch.split(torch.arange(view.victims), self.victims_at_once or view.victims)
        found = torch.cat([self.marginals(view, lists, chunk, generator) for chunk in counted(chunks)])
        scores = lists.of_items(found.float(), view.served_mask)
        return InteractionEstimate(scores=scores, decisions=(scores > 0.5) & view.served_mask)

    @abc.abstractmethod
    def marginals(self, view: ServerView, lists: Lists, chunk: Tensor, generator: torch.Generator) -> Tensor:
        """Click probabilities ``(W, Q, L)`` of the victims at the positions ``chunk (W,)``."""


@dataclass(frozen=True, kw_only=True)
class PriorOnly(PosteriorAttack):
    """Click probabilities under a prior: the baseline of every attack that has this prior.

    Threat model: a server that does not look at the update, but knows the click model and the displayed order.

    Args:
        prior: see `log_prior`.
    """

    name = "prior-only"
    baseline = True
    threat_model = ThreatModel(
        sees="which documents were served, in which order",
        knows="the click model and how frequent each grade is; nothing of the update",
        needs=("served", "lists", "learner:RankingSimulator"),
    )

    prior: ListPrior = "cascade"

    def marginals(self, view: ServerView, lists: Lists, chunk: Tensor, generator: torch.Generator) -> Tensor:
        # In float64, so that what is equal stays equal: rounding would rank lists by their length.
        law = log_prior(self.prior, lists.mask, view.require(RankingSimulator)).double().softmax(-1).nan_to_num()
        return law @ patterns(lists.mask.shape[-1]).double()
