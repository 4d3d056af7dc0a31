"""Attacks on federated learning to rank: which documents of its ranked lists did a client click?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.attacks.ranking.codebook import CodebookAttack as CodebookAttack
    from fedleak.attacks.ranking.list_matching import ListMatching as ListMatching
    from fedleak.attacks.ranking.list_posterior import ListPosterior as ListPosterior
    from fedleak.attacks.ranking.metric_posterior import MetricPosterior as MetricPosterior
    from fedleak.attacks.ranking.priors import PriorOnly as PriorOnly
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "CodebookAttack": "fedleak.attacks.ranking.codebook",
            "ListMatching": "fedleak.attacks.ranking.list_matching",
            "ListPosterior": "fedleak.attacks.ranking.list_posterior",
            "MetricPosterior": "fedleak.attacks.ranking.metric_posterior",
            "PriorOnly": "fedleak.attacks.ranking.priors",
        },
    )
