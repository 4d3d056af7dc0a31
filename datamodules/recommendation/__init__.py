"""Data sets of which user interacted with which item."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from datamodules.recommendation.base import RecommenderDataModule as RecommenderDataModule
    from datamodules.recommendation.movielens import MovieLens as MovieLens
    from datamodules.recommendation.steam import Steam as Steam
    from datamodules.recommendation.synthetic_recommender import SyntheticRecommender as SyntheticRecommender

__all__ = exports(__name__)
