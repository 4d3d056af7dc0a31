"""MovieLens (Harper and Konstan 2015): 100K, 1M and latest-small, as interactions or as likes and dislikes."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from datamodules.io.download import Archive, by_hand, fetch_archive
from datamodules.recommendation.base import RecommenderDataModule
from datamodules.recommendation.interactions import Interactions, unique_interactions
from datamodules.recommendation.ratings_csv import read_ratings, sha256_of, warn_of_other

Variant = Literal["ml-100k", "ml-1m", "ml-latest-small"]
Preferences = Literal["interacted", "liked"]
STARS = (0.5, 5.0)
"""The fewest and the most stars of a rating."""
LIKED = 4.0
"""Stars from which a rating says that a user liked the film."""
_PAGE = "https://grouplens.org/datasets/movielens/"


@dataclass(frozen=True)
class _Layout:
    file: str
    separator: str
    header: bool = False
    archive: Archive | None = None
    sha256: str | None = None


_LAYOUTS: dict[str, _Layout] = {
    "ml-100k": _Layout(
        "u.data",
        "\t",
        archive=Archive(
            "https://files.grouplens.org/datasets/movielens/ml-100k.zip", "0e33842e24a9c977be4e0107933c0723", 4924029
        ),
        sha256="06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490",
    ),
    "ml-1m": _Layout(
        "ratings.dat",
        "::",
        archive=Archive(
            "https://files.grouplens.org/datasets/movielens/ml-1m.zip", "c4d9eecfca2ab87c1945afe126590906", 5917549
        ),
    ),
    # Its owners change it from time to time, so no hash could be checked.
    "ml-latest-small": _Layout("ratings.csv", ",", header=True),
}


class MovieLens(RecommenderDataModule):
    """MovieLens users as clients; the other arguments are those of `RecommenderDataModule`.

    Args:
        variant: which of the sets; also the name of its folder under `root`.
        download: fetch it where it is missing and its origin allows that.
        preferences: ``interacted``: a rated film is liked, and negatives are drawn among the others; ``liked``: a film
            rated with four stars or more is liked, one rated with fewer is not, and no other film is labelled.
    """

    folders = tuple(_LAYOUTS)

    def __init__(
        self,
        *,
        variant: Variant = "ml-100k",
        download: bool = False,
        preferences: Preferences = "interacted",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.preferences = preferences
        self.variant = variant
        self.download = download

    @classmethod
    def folder_arguments(cls, folder: str) -> dict[str, Any]:
        return {"variant": folder}

    @property
    def _path(self) -> Path:
        return self.data_root() / self.variant / _LAYOUTS[self.variant].file

    @functools.cached_property
    def fingerprint(self) -> dict[str, str]:
        """Name of the folder and hash of the ratings file."""
        return {"name": self.variant, "sha256": sha256_of(self._path)}

    def prepare_data(self) -> None:
        """Downloads what is missing, on one process."""
        self._fetch()

    def read(self) -> Interactions:
        """See `RecommenderDataModule.read`; user and item numbers count the identifiers in ascending order."""
        self._fetch()
        layout = _LAYOUTS[self.variant]
        columns = ["user", "item", "rating", "time"]
        frame = read_ratings(
            self._path,
            columns=columns,
            whole=["user", "item", "time"],
            numeric={"rating": STARS},
            separator=layout.separator,
            header=layout.header,
        )
        warn_of_other(self._path, layout.sha256, self.fingerprint["sha256"])
        users, user = np.unique(frame["user"].to_numpy(dtype=np.int64), return_inverse=True)
        items, item = np.unique(frame["item"].to_numpy(dtype=np.int64), return_inverse=True)
        time = frame["time"].to_numpy(dtype=np.int64)
        liked = frame["rating"].to_numpy(dtype=float) >= LIKED if self.preferences == "liked" else None
        return unique_interactions(user, item, time, num_users=len(users), num_items=len(items), liked=liked)

    def _fetch(self) -> None:
        if not self.download:
            return
        archive = _LAYOUTS[self.variant].archive
        if archive is not None:
            fetch_archive(archive, self.data_root(), target=self._path)
        elif not self._path.exists():
            raise by_hand(name=self.variant, page=_PAGE, target=self._path)
