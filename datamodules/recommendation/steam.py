"""Steam-200K: users and the games that they bought or played."""

import functools
from pathlib import Path

import numpy as np

from fedleak.core.io.files import sha256_of
from fedleak.core.io.tables import LINE, WHOLE, number, read_table
from fedleak.datamodules.recommendation.base import RecommenderDataModule
from fedleak.datamodules.recommendation.interactions import Interactions, unique_interactions

_PAGE = "https://www.kaggle.com/datasets/tamber/steam-video-games"
_COLUMNS = {"user": WHOLE, "game": LINE, "behaviour": LINE, "value": number(0, 1e6), "zero": LINE}


class Steam(RecommenderDataModule):
    """Steam-200K, 128,804 different pairs of 12,393 users and 5,155 games; a bought or played game is liked.

    The file has no times, so its order stands for them.

    Files: ``root/steam-200k/steam-200k.csv``, from https://www.kaggle.com/datasets/tamber/steam-video-games.

    References:
        [Tamber17].
    """

    folders = ("steam-200k",)

    @property
    def _path(self) -> Path:
        return self.data_root() / "steam-200k" / "steam-200k.csv"

    @functools.cached_property
    def fingerprint(self) -> dict[str, str]:
        return {"name": "steam-200k", "sha256": sha256_of(self._path)}

    def read(self) -> Interactions:
        columns, _ = read_table(self._path, _COLUMNS, page=_PAGE, header=False)
        users, user = np.unique(columns["user"], return_inverse=True)
        games, game = np.unique(columns["game"], return_inverse=True)
        # The file has no times: its order stands for them.
        return unique_interactions(
            user,
            game,
            np.arange(len(user)),
            num_users=len(users),
            num_items=len(games),
        )
