"""Data sets of queries with ranked documents."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from datamodules.ranking.base import RankingDataModule as RankingDataModule
    from datamodules.ranking.letor import LETOR as LETOR
    from datamodules.ranking.mslr import MSLR as MSLR
    from datamodules.ranking.synthetic_ranking import SyntheticRanking as SyntheticRanking

__all__ = exports(__name__)
