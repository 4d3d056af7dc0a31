"""Priors of clicks, posterior attacks and the baseline without the update."""

import abc
import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.interactions.estimates import InteractionAttack, InteractionEstimate
from fedleak.client.click_models import patterns
from fedleak.client.list_priors import ListPrior, log_prior
from fedleak.client.ranked_lists import Lists, ranked_lists
from fedleak.client.ranking import RankingAlgorithm
from fedleak.core.attack import Variants
from fedleak.core.progress import with_progress
from fedleak.core.ranges import PositiveInt
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView


def prior_variant(name: str, model: ThreatModel) -> Variants:
    """Variant of an attack under ``NAME+prior``: the posterior of whole lists with the cascade prior.

    The clicks in a list depend on one another under the click model, which a sum of log odds by document would ignore.
    """
    knows = "the learning algorithm, the click model, the displayed order and the distribution of the grades"
    return {
        "prior": {
            "prior": "cascade",
            "name": f"{name}+prior",
            "with_prior": "posterior",
            "threat_model": dataclasses.replace(model, knows=knows),
        }
    }


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
        probabilities = []
        for chunk in with_progress(chunks):
            probabilities.append(self.marginals(view, lists, chunk, generator))
        scores = lists.of_items(torch.cat(probabilities).float(), view.served_mask)
        return InteractionEstimate(scores=scores, decisions=(scores > 0.5) & view.served_mask)

    @abc.abstractmethod
    def marginals(self, view: RoundView, lists: Lists, chunk: Tensor, generator: torch.Generator) -> Tensor:
        """Click probabilities ``(W, Q, L)`` of the victims at the positions ``chunk (W,)``."""


@dataclass(frozen=True, kw_only=True)
class PriorOnly(PosteriorAttack):
    """Click probabilities under the prior alone: the baseline of every attack with this prior.

    Threat model: a server that knows the click model and the displayed order and does not use the update.

    References:
        This project; the click models are those of [Pham25], section V.B.2.

    Example:
        >>> import torch
        >>> from fedleak.attacks.ranking import PriorOnly
        >>> from fedleak.attacks.ranking.toy import toy
        >>> view, truth = toy()
        >>> estimate = PriorOnly()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        0.45
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
