"""Priors of clicks, posterior attacks and the baseline without the update."""

import abc
import dataclasses
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedleak.attacks.interactions.estimates import InteractionAttack, InteractionEstimate
from fedleak.attacks.ranking.lists import Lists, ranked_lists
from fedleak.client.click_models import cascade_log_law, count_log_law, patterns, steps_for_law, uniform_log_law
from fedleak.client.foltr_es import FOLtRESAlgorithm
from fedleak.client.ranking import RankingAlgorithm
from fedleak.core.attack import Variants
from fedleak.core.progress import with_progress
from fedleak.core.ranges import PositiveInt
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

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


def prior_variant(name: str, model: ThreatModel) -> Variants:
    """Variant of an attack under ``NAME+prior``: the posterior of whole lists with the cascade prior.

    The clicks in a list depend on one another under the click model, which a sum of log odds by document would ignore.
    """
    knows = "the learning algorithm, the click model, the displayed order and the distribution of the grades"
    model = dataclasses.replace(model, knows=knows)
    return {"prior": {"prior": "cascade", "name": f"{name}+prior", "with_prior": "posterior", "threat_model": model}}


@dataclass(frozen=True, kw_only=True)
class PosteriorAttack(InteractionAttack):
    """Base class of attacks that infer click probabilities under a prior; a subclass implements `marginals`.

    Args:
        prior: see `log_prior`.
        victims_at_once: victims processed together, which bounds the memory; None for all.
    """

    family = "ranking"

    prior: ListPrior
    victims_at_once: PositiveInt | None = None

    def run(self, view: RoundView, *, generator: torch.Generator) -> InteractionEstimate:
        lists = ranked_lists(view)
        chunks = torch.split(torch.arange(view.victims), self.victims_at_once or view.victims)
        found = torch.cat([self.marginals(view, lists, chunk, generator) for chunk in with_progress(chunks)])
        scores = lists.of_items(found.float(), view.served_mask)
        return InteractionEstimate(scores=scores, decisions=(scores > 0.5) & view.served_mask)

    @abc.abstractmethod
    def marginals(self, view: RoundView, lists: Lists, chunk: Tensor, generator: torch.Generator) -> Tensor:
        """Click probabilities ``(W, Q, L)`` of the victims at the positions ``chunk (W,)``."""


@dataclass(frozen=True, kw_only=True)
class PriorOnly(PosteriorAttack):
    """Click probabilities under the prior alone: the baseline of every attack with this prior.

    Threat model: a server that knows the click model and the displayed order and does not use the update.

    References:
        This project; the click models are those of Pham, Kulkarni and Houmansadr, "RAIFLE", NDSS 2025,
        arXiv:2310.19163, section V.B.2.
    """

    name = "prior-only"
    baseline = True
    is_prior = True
    threat_model = ThreatModel(
        sees="which documents were served, in which order",
        knows="the click model and the distribution of the grades",
        needs=("served", "lists", RankingAlgorithm),
    )

    prior: ListPrior = "cascade"

    def marginals(self, view: RoundView, lists: Lists, chunk: Tensor, generator: torch.Generator) -> Tensor:
        # In float64, so that equal values stay equal: rounding would rank lists by their length.
        law = log_prior(self.prior, lists.mask, view.require(RankingAlgorithm)).double().softmax(-1).nan_to_num()
        return law @ patterns(lists.mask.shape[-1]).double()
