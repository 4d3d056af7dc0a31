"""Data sets of which user interacted with which item."""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.datamodules.recommendation.base import RecommenderDataModule as RecommenderDataModule
    from fedleak.datamodules.recommendation.movielens import MovieLens as MovieLens
    from fedleak.datamodules.recommendation.steam import Steam as Steam
    from fedleak.datamodules.recommendation.synthetic_recommender import SyntheticRecommender as SyntheticRecommender
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "RecommenderDataModule": "fedleak.datamodules.recommendation.base",
            "MovieLens": "fedleak.datamodules.recommendation.movielens",
            "Steam": "fedleak.datamodules.recommendation.steam",
            "SyntheticRecommender": "fedleak.datamodules.recommendation.synthetic_recommender",
        },
    )
