"""A synthetic recommender data set with the shape of MovieLens; results on it say nothing about real data."""

import functools
from typing import Any

import numpy as np

from fedleak.core.errors import require
from fedleak.core.io.files import sha256_of_arrays
from fedleak.core.ranges import NonNegativeFloat, PositiveInt
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.datamodules.recommendation.base import RecommenderDataModule
from fedleak.datamodules.recommendation.interactions import Interactions, unique_interactions

_TASTES = 8
"""Dimensions of the tastes."""


class SyntheticRecommender(RecommenderDataModule):
    """Users with low-rank tastes over items whose popularity falls as a power of their rank. Needs no files.

    Args:
        users: number of users (MovieLens-100K: 943).
        items: number of items (MovieLens-100K: 1,682).
        mean_interactions: mean number of interactions of a user (MovieLens-100K: 106).
        fewest_interactions: smallest number (MovieLens-100K: 20).
        spread: standard deviation of the logarithm of the number beyond the smallest.
    """

    folders = ("synthetic",)

    def __init__(
        self,
        *,
        users: PositiveInt = 943,
        items: PositiveInt = 1682,
        mean_interactions: float = 106.0,
        fewest_interactions: int = 20,
        spread: NonNegativeFloat = 1.2,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require(
            0 < fewest_interactions <= mean_interactions < items,
            "0 < fewest_interactions <= mean_interactions < items",
            f"{fewest_interactions}, {mean_interactions}, {items}",
            "Give a larger catalogue or fewer interactions.",
        )
        self.users = users
        self.items = items
        self.spread = spread
        self.mean_interactions = mean_interactions
        self.fewest_interactions = fewest_interactions

    @functools.cached_property
    def fingerprint(self) -> dict[str, str]:
        return {"name": "synthetic", "sha256": sha256_of_arrays(self.read().items)}

    def read(self) -> Interactions:
        """Draws the interactions; a Gumbel draw on the logits is a sample without replacement."""
        random = np.random.default_rng(generator_for(self.seed, "synthetic", PERSISTENT).initial_seed() % 2**63)
        counts = self._counts(random)
        # Logits of an item for a user: popularity, which falls as rank^-0.8, and the product of two vectors of tastes.
        popularity = -0.8 * np.log(1 + random.permutation(self.items))
        user_vectors = random.normal(size=(self.users, _TASTES))
        item_vectors = random.normal(size=(_TASTES, self.items))
        tastes = user_vectors @ item_vectors / _TASTES**0.5
        keys = popularity + tastes + random.gumbel(size=tastes.shape)
        ranked = np.argsort(-keys, axis=1)
        is_chosen = np.arange(self.items) < counts[:, None]
        user = np.repeat(np.arange(self.users), counts)
        return unique_interactions(
            user,
            ranked[is_chosen],
            np.arange(len(user)),
            num_users=self.users,
            num_items=self.items,
        )

    def _counts(self, random: np.random.Generator) -> np.ndarray[Any, np.dtype[np.int64]]:
        extra = self.mean_interactions - self.fewest_interactions
        # The mean of a lognormal is exp(mu + s^2 / 2).
        draws = np.exp(self.spread * random.normal(size=self.users) - self.spread**2 / 2) * extra
        # At most half of the items, so that negatives are left.
        counts: np.ndarray[Any, np.dtype[np.int64]] = np.clip(
            self.fewest_interactions + draws.astype(np.int64), 1, self.items // 2
        )
        return counts
