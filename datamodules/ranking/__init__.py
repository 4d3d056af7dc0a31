"""Data sets of queries with ranked documents."""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

if TYPE_CHECKING:
    from fedleak.datamodules.ranking.base import RankingDataModule as RankingDataModule
    from fedleak.datamodules.ranking.letor import LETOR as LETOR
    from fedleak.datamodules.ranking.mslr import MSLR as MSLR
    from fedleak.datamodules.ranking.synthetic_ranking import SyntheticRanking as SyntheticRanking

__all__ = exports(__name__)
