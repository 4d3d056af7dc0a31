"""The prior alone: what an adversary guesses of clicks that never looks at an update."""

import torch

from attacks.base import Attack, InteractionEstimate, ServerView, ThreatModel
from attacks.interactions.click_patterns import patterns
from attacks.interactions.list_priors import ListPrior, log_prior
from attacks.interactions.lists import ranked_lists


class PriorOnly(Attack):
    """Marginal click probabilities under a prior: the line that stands beside every attack with that prior.

    Threat model: a server that does not look at the update, but knows the click model and the displayed order.

    Args:
        prior: see `list_priors.log_prior`.
    """

    name = "prior-only"
    threat_model = ThreatModel(
        sees="which documents were served, in which order",
        knows="the click model and how frequent each grade is; nothing of the update",
        needs=("served", "lists", "learner"),
    )

    def __init__(self, *, prior: ListPrior = "cascade") -> None:
        self.prior: ListPrior = prior

    def run(self, view: ServerView, *, generator: torch.Generator) -> InteractionEstimate:
        """See `Attack.run`."""
        lists = ranked_lists(view)
        # In float64, so that what is equal stays equal: rounding would rank lists by their length.
        law = log_prior(self.prior, lists.mask, view.ranker()).double().softmax(-1).nan_to_num()
        marginals = (law @ patterns(lists.mask.shape[-1]).double()).float()
        scores = lists.of_items(marginals, view.served_mask)
        return InteractionEstimate(scores=scores, decisions=(scores > 0.5) & view.served_mask)
