"""Attacks on federated learning to rank: which documents of its ranked lists did a client click?"""

from attacks.ranking.codebook import CodebookAttack
from attacks.ranking.list_matching import ListMatching
from attacks.ranking.list_posterior import ListPosterior
from attacks.ranking.metric_posterior import MetricPosterior
from attacks.ranking.priors import PriorOnly

__all__ = ["CodebookAttack", "ListMatching", "ListPosterior", "MetricPosterior", "PriorOnly"]
