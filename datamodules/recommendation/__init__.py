"""Data sets of which user interacted with which item."""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

if TYPE_CHECKING:
    from fedleak.datamodules.recommendation.base import RecommenderDataModule as RecommenderDataModule
    from fedleak.datamodules.recommendation.movielens import MovieLens as MovieLens
    from fedleak.datamodules.recommendation.steam import Steam as Steam
    from fedleak.datamodules.recommendation.synthetic_recommender import SyntheticRecommender as SyntheticRecommender

__all__ = exports(__name__)
