"""Data sets of queries with ranked documents."""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.datamodules.ranking.base import RankingDataModule as RankingDataModule
    from fedleak.datamodules.ranking.letor import LETOR as LETOR
    from fedleak.datamodules.ranking.mslr import MSLR as MSLR
    from fedleak.datamodules.ranking.synthetic_ranking import SyntheticRanking as SyntheticRanking
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "RankingDataModule": "fedleak.datamodules.ranking.base",
            "LETOR": "fedleak.datamodules.ranking.letor",
            "MSLR": "fedleak.datamodules.ranking.mslr",
            "SyntheticRanking": "fedleak.datamodules.ranking.synthetic_ranking",
        },
    )
