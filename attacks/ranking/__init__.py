"""Attacks on federated learning to rank: which documents of its ranked lists did a client click?"""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from attacks.ranking.codebook import CodebookAttack as CodebookAttack
    from attacks.ranking.list_matching import ListMatching as ListMatching
    from attacks.ranking.list_posterior import ListPosterior as ListPosterior
    from attacks.ranking.metric_posterior import MetricPosterior as MetricPosterior
    from attacks.ranking.priors import PriorOnly as PriorOnly

__all__ = exports(__name__)
