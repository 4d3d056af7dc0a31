"""Attacks on federated learning to rank: which documents of its ranked lists did a client click?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

if TYPE_CHECKING:
    from fedleak.attacks.ranking.codebook import CodebookAttack as CodebookAttack
    from fedleak.attacks.ranking.list_matching import ListMatching as ListMatching
    from fedleak.attacks.ranking.list_posterior import ListPosterior as ListPosterior
    from fedleak.attacks.ranking.metric_posterior import MetricPosterior as MetricPosterior
    from fedleak.attacks.ranking.priors import PriorOnly as PriorOnly

__all__ = exports(__name__)
