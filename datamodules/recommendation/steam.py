"""Steam-200K (Tamber 2017): who bought and played which game, binarised."""

import functools
from pathlib import Path
from typing import Any

import numpy as np

from datamodules.io.download import by_hand
from datamodules.recommendation.base import RecommenderDataModule
from datamodules.recommendation.interactions import Interactions, unique_interactions
from datamodules.recommendation.ratings_csv import read_ratings, sha256_of

_PAGE = "https://www.kaggle.com/datasets/tamber/steam-video-games"
_COLUMNS = ["user", "game", "behaviour", "value", "zero"]


class Steam(RecommenderDataModule):
    """Steam users as clients; a bought or played game is an interaction, repetitions count once.

    The file has no times; its order stands for them. Arguments are those of `RecommenderDataModule`.
    """

    folders = ("steam-200k",)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    @property
    def _path(self) -> Path:
        return self.data_root() / "steam-200k" / "steam-200k.csv"

    @functools.cached_property
    def fingerprint(self) -> dict[str, str]:
        """Name of the folder and hash of the file."""
        return {"name": "steam-200k", "sha256": sha256_of(self._path)}

    def read(self) -> Interactions:
        if not self._path.exists():
            raise by_hand(name="steam-200k", page=_PAGE, target=self._path)
        frame = read_ratings(self._path, columns=_COLUMNS, whole=["user"], numeric={"value": (0, 1e6)}, separator=",")
        users, user = np.unique(frame["user"].to_numpy(dtype=np.int64), return_inverse=True)
        games, game = np.unique(frame["game"].to_numpy(dtype=str), return_inverse=True)
        time = np.arange(len(frame))
        return unique_interactions(user, game, time, num_users=len(users), num_items=len(games))
