"""MovieLens: users and the films that they rated."""

import functools
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from datamodules.io.download import Archive, by_hand, fetch_archive
from datamodules.io.files import sha256_of
from datamodules.io.tables import WHOLE, number, read_table
from datamodules.recommendation.base import RecommenderDataModule
from datamodules.recommendation.interactions import Interactions, unique_interactions

LIKED = 4.0
"""Stars from which a rating means that the user liked the film."""
_COLUMNS = {"userId": WHOLE, "movieId": WHOLE, "rating": number(0.5, 5), "timestamp": WHOLE}
_PAGE = "https://grouplens.org/datasets/movielens/"
_FILES = "https://files.grouplens.org/datasets/movielens/"
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Layout:
    file: str
    separator: str
    archive: Archive | None
    sha256: str | None = None


_LAYOUTS: dict[str, _Layout] = {
    "ml-100k": _Layout(
        "u.data",
        "\t",
        Archive(f"{_FILES}ml-100k.zip", "0e33842e24a9c977be4e0107933c0723"),
        "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490",
    ),
    "ml-1m": _Layout("ratings.dat", "::", Archive(f"{_FILES}ml-1m.zip", "c4d9eecfca2ab87c1945afe126590906")),
    # Its owners change it from time to time, so there is no hash to check.
    "ml-latest-small": _Layout("ratings.csv", ",", None),
}


class MovieLens(RecommenderDataModule):
    """MovieLens, ratings of films by the users of a web site.

    Sizes: 100,000 ratings of 1,682 films by 943 users (``ml-100k``); 1,000,209 of 3,706 by 6,040 (``ml-1m``); about
    100,000 of 9,700 by 610 (``ml-latest-small``). Users and items are numbered by their identifiers in ascending order.

    Files: ``root/ml-100k/u.data``, ``root/ml-1m/ratings.dat`` or ``root/ml-latest-small/ratings.csv``, from
    https://grouplens.org/datasets/movielens/.

    Args:
        variant: the set; also the name of its folder under `root`.
        download: download the file if it is missing (``ml-100k`` and ``ml-1m``).
        preferences: ``interacted``: a rated film is liked, and negatives are drawn among the others; ``liked``: a film
            rated with four stars or more is liked, one rated with fewer is not, and no other film is labelled.
        kwargs: see `RecommenderDataModule`.

    References:
        F. M. Harper and J. A. Konstan, "The MovieLens Datasets: History and Context", ACM TiiS 5(4), 2015.
    """

    folders = tuple(_LAYOUTS)

    def __init__(
        self,
        *,
        variant: Literal["ml-100k", "ml-1m", "ml-latest-small"] = "ml-100k",
        download: bool = False,
        preferences: Literal["interacted", "liked"] = "interacted",
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
        return {"name": self.variant, "sha256": sha256_of(self._path)}

    def prepare_data(self) -> None:
        """Downloads the file if that was asked for and it is missing."""
        if not self.download:
            return
        archive = _LAYOUTS[self.variant].archive
        if archive is not None:
            fetch_archive(archive, self.data_root(), target=self._path)
        elif not self._path.exists():
            raise by_hand(name=self.variant, page=_PAGE, target=self._path)

    def read(self) -> Interactions:
        self.prepare_data()
        layout = _LAYOUTS[self.variant]
        page = _PAGE if layout.archive is None else f"{_PAGE} (or set download: true)"
        columns, _ = read_table(
            self._path, _COLUMNS, page=page, separator=layout.separator, header=layout.separator == ","
        )
        found = self.fingerprint["sha256"]
        if layout.sha256 not in (None, found):
            _logger.warning("%s is not the published file: its sha256 is %s, not %s.", self._path, found, layout.sha256)
        user_ids, item_ids, ratings, times = (np.array(values) for values in columns.values())
        users, user = np.unique(user_ids, return_inverse=True)
        items, item = np.unique(item_ids, return_inverse=True)
        liked = ratings >= LIKED if self.preferences == "liked" else None
        return unique_interactions(user, item, times, num_users=len(users), num_items=len(items), liked=liked)
