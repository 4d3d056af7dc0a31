"""MovieLens: users and the films that they rated."""

import functools
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedleak.core.errors import InputError, require
from fedleak.core.io.download import Archive, fetch_archive
from fedleak.core.io.files import sha256_of
from fedleak.core.io.tables import TEXT, WHOLE, Field, matching, number, read_table
from fedleak.datamodules.recommendation.base import RecommenderDataModule
from fedleak.datamodules.recommendation.interactions import Interactions, unique_interactions
from fedleak.training.people import bands

LIKED = 4.0
"""Stars from which a rating means that the user liked the film."""
_COLUMNS = {"userId": WHOLE, "movieId": WHOLE, "rating": number(0.5, 5), "timestamp": WHOLE}
OCCUPATIONS = (
    "administrator",
    "artist",
    "doctor",
    "educator",
    "engineer",
    "entertainment",
    "executive",
    "healthcare",
    "homemaker",
    "lawyer",
    "librarian",
    "marketing",
    "none",
    "other",
    "programmer",
    "retired",
    "salesman",
    "scientist",
    "student",
    "technician",
    "writer",
)
"""Of the users, in the order of ``u.occupation``."""
_GENDER = matching("[MF]", "M or F", "MF".index)
_NAMED = matching("|".join(OCCUPATIONS), "one of the 21 occupations of u.occupation", OCCUPATIONS.index)
_NUMBERED = matching("1?[0-9]|20", "a number of an occupation from 0 to 20", int)
_PAGE = "https://grouplens.org/datasets/movielens/"
_FILES = "https://files.grouplens.org/datasets/movielens/"
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Variant:
    file: str
    separator: str
    archive: Archive | None
    sha256: str | None = None
    people: "_People | None" = None


@dataclass(frozen=True)
class _People:
    """A file of the users' attributes, its separator and columns, and the first age of the second and third band."""

    file: str
    separator: str
    columns: dict[str, Field]
    ages: tuple[int, int]


_VARIANTS: dict[str, _Variant] = {
    "ml-100k": _Variant(
        "u.data",
        "\t",
        Archive(f"{_FILES}ml-100k.zip", "0e33842e24a9c977be4e0107933c0723"),
        "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490",
        _People(
            "u.user",
            "|",
            {"userId": WHOLE, "age": WHOLE, "gender": _GENDER, "occupation": _NAMED, "zip": TEXT},
            (35, 46),
        ),
    ),
    "ml-1m": _Variant(
        "ratings.dat",
        "::",
        Archive(f"{_FILES}ml-1m.zip", "c4d9eecfca2ab87c1945afe126590906"),
        people=_People(  # its ages are the first of 1 to 17, 18 to 24, 25 to 34, 35 to 44, 45 to 49, 50 to 55, 56 on
            "users.dat",
            "::",
            {"userId": WHOLE, "gender": _GENDER, "age": WHOLE, "occupation": _NUMBERED, "zip": TEXT},
            (35, 45),
        ),
    ),
    # Its owners change it from time to time, so there is no hash to check.
    "ml-latest-small": _Variant("ratings.csv", ",", None),
}


class MovieLens(RecommenderDataModule):
    """MovieLens, ratings of films by the users of a web site.

    Sizes: 100,000 ratings of 1,682 films by 943 users (``ml-100k``); 1,000,209 of 3,706 by 6,040 (``ml-1m``); about
    100,000 of 9,700 by 610 (``ml-latest-small``). Users and items are numbered by their identifiers in ascending order.

    Files: ``root/ml-100k/u.data``, ``root/ml-1m/ratings.dat`` or ``root/ml-latest-small/ratings.csv``, from
    https://grouplens.org/datasets/movielens/.

    Attributes of people, in ``root/ml-100k/u.user`` and ``root/ml-1m/users.dat``: ``gender``, ``age`` (below 35, 35 to
    45 or, of ml-1m, to 44, and above) and ``occupation`` (21 of them).

    Args:
        variant: the set; also the name of its folder under `root`.
        download: download the file if it is missing (``ml-100k`` and ``ml-1m``).
        preferences: ``interacted``: a rated film is liked, and negatives are drawn among the others; ``liked``: a film
            rated with four stars or more is liked, one rated with fewer is not, and no other film is labelled.

    References:
        [Harper15].
    """

    folders = tuple(_VARIANTS)

    def __init__(
        self,
        *,
        variant: Literal["ml-100k", "ml-1m", "ml-latest-small"] = "ml-100k",
        download: bool = False,
        preferences: Literal["interacted", "liked"] = "interacted",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.variant = variant
        self.download = download
        self.preferences = preferences

    @classmethod
    def folder_arguments(cls, folder: str) -> dict[str, Any]:
        return {"variant": folder}

    @property
    def _path(self) -> Path:
        return self.data_root() / self.variant / _VARIANTS[self.variant].file

    @functools.cached_property
    def fingerprint(self) -> dict[str, str]:
        return {"name": self.variant, "sha256": sha256_of(self._path)}

    def prepare_data(self) -> None:
        if not self.download:
            return
        archive = _VARIANTS[self.variant].archive
        if archive is not None:
            fetch_archive(archive, self.data_root(), target=self._path)
        else:  # its owners allow no automatic download
            way_out = f"Download it from {_PAGE} and put it there."
            require(self._path.exists(), f"{self.variant} at {self._path}", "no such file", way_out)

    def read(self) -> Interactions:
        self.prepare_data()
        variant = _VARIANTS[self.variant]
        page = _PAGE
        if variant.archive is not None:
            page = f"{_PAGE} (or set download: true)"
        columns, _ = read_table(
            self._path, _COLUMNS, page=page, separator=variant.separator, header=variant.separator == ","
        )
        sha256 = self.fingerprint["sha256"]
        if variant.sha256 not in (None, sha256):
            _logger.warning(
                "%s is not the published file: its sha256 is %s, not %s.", self._path, sha256, variant.sha256
            )
        # Users and films are numbered from 0 in the order of their identifiers.
        user_ids, item_ids, ratings, times = (np.array(values) for values in columns.values())
        users, user = np.unique(user_ids, return_inverse=True)
        items, item = np.unique(item_ids, return_inverse=True)
        self._all_users = users
        liked = None
        if self.preferences == "liked":
            liked = ratings >= LIKED
        return unique_interactions(user, item, times, num_users=len(users), num_items=len(items), liked=liked)

    def read_attributes(self) -> dict[str, Tensor]:
        people = _VARIANTS[self.variant].people
        if people is None:
            raise InputError(
                expected="ml-100k or ml-1m, which have a file of their users' attributes",
                found=self.variant,
                way_out="Set data.variant to one of these, or leave data.attributes out.",
            )
        path = self._path.with_name(people.file)
        columns, _ = read_table(path, people.columns, page=_PAGE, separator=people.separator, header=False)
        row_of_user = {user: row for row, user in enumerate(columns["userId"])}
        # Clients are numbered by rank; the file has the users' identifiers.
        ranks = self._split[0].ranks
        user_ids = self._all_users  # known once the split has read the ratings
        if ranks is not None:
            user_ids = user_ids[ranks]
        users = user_ids.tolist()
        absent = next((user for user in users if user not in row_of_user), None)
        require(
            absent is None,
            f"every user of {self._path.name} in {path}",
            f"no line of user {absent}",
            "Copy it again.",
        )
        rows = torch.tensor([row_of_user[user] for user in users])
        ages = torch.tensor(columns["age"])[rows]
        return {
            "age": bands(ages, people.ages),
            "gender": torch.tensor(columns["gender"])[rows],
            "occupation": torch.tensor(columns["occupation"])[rows],
        }
