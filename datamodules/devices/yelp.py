"""Yelp Open Dataset: reviewers, their reviews and the stars that they give; and Amazon's reviews, its background."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from fedleak.core.errors import require
from fedleak.core.io.tables import (
    STARS,
    TEXT,
    BadRows,
    Unparsable,
    matching,
    parse_json_line,
    read_json_lines,
    read_table,
)
from fedleak.datamodules.devices.dates import days_of, iso_day
from fedleak.datamodules.devices.text import OwnedTextDataModule
from fedleak.datamodules.devices.tokenization import TokenizationOptions
from fedleak.datamodules.devices.user_filter import Ints, Posts, UserFilter, ranks_of

_PAGE = "https://www.yelp.com/dataset"
_CSV_PAGE = "https://www.kaggle.com/datasets/omkarsabnis/yelp-reviews-dataset"
_AMAZON = "https://www.kaggle.com/datasets/eswarchandt/amazon-music-reviews"
_COLUMNS = {"user_id": matching(r"\S+", "an account"), "date": TEXT, "stars": STARS, "text": TEXT}


class Yelp(OwnedTextDataModule):
    """Yelp Open Dataset, whole reviews with 1 to 5 stars.

    Size: 7 million reviews; the paper uses 85,615 of 118 users. The public CSV file has 10,000 reviews, at most 38 of
    one user.

    Files: ``root/yelp/yelp_academic_dataset_review.json`` from https://www.yelp.com/dataset, or else
    ``root/yelp/yelp.csv`` from https://www.kaggle.com/datasets/omkarsabnis/yelp-reviews-dataset. Background: Amazon's
    reviews in ``root/amazon/*.csv``, see `read_amazon`.

    Args:
        users: see `OwnedDataModule`; the paper's have at least 500 reviews.
    """

    name = "yelp"
    folders = (name,)
    unit = "text"
    rated = True

    def __init__(
        self,
        *,
        users: UserFilter = UserFilter(fewest=500),  # noqa: B008 - frozen
        text: TokenizationOptions = TokenizationOptions(vocabulary=1000, words=200, fewest_words=1),  # noqa: B008 - frozen
        **kwargs: Any,
    ) -> None:
        super().__init__(users=users, text=text, **kwargs)

    def read_posts(self) -> Posts:
        folder = self.data_root() / self.name
        path = folder / "yelp_academic_dataset_review.json"
        if path.is_file():
            return read_yelp_json(path, fewest=self.users.fewest, bad_rows=self.bad_rows)
        columns, unparsable = read_table(folder / "yelp.csv", _COLUMNS, page=_CSV_PAGE, bad_rows=self.bad_rows)
        return _oldest_first(
            columns["text"], ranks_of(columns["user_id"]), columns["date"], columns["stars"], unparsable
        )

    def background_texts(self) -> tuple[Sequence[str], Sequence[float]]:
        return read_amazon(self.data_root(), bad_rows=self.bad_rows)


def read_yelp_json(path: Path, *, fewest: int, bad_rows: BadRows) -> Posts:
    """Reviews of ``yelp_academic_dataset_review.json`` by users with enough reviews; one JSON object per line.

    The file is read line by line, and reviews of other users use no memory.
    """
    # The file has some GB: the first pass keeps only users and positions, the second one reads the chosen reviews.
    users: list[str] = []
    begins: list[int] = []
    unparsable = Unparsable()
    lines = read_json_lines(path, _user_of, page=_PAGE)
    for number, begin, user in tqdm(lines, unit="review", desc=path.name, delay=2, leave=False, disable=None):
        if user is None:
            unparsable.add(number)
        else:
            users.append(user)
            begins.append(begin)
    unparsable.refuse(path, "a review with user_id, date, stars and text in every line", bad_rows)
    owners = ranks_of(users)
    has_enough = np.bincount(owners) >= fewest if users else np.empty(0, bool)
    chosen = np.flatnonzero(has_enough[owners])
    texts: list[str] = []
    dates: list[str] = []
    stars: list[float] = []
    with path.open("rb") as file:
        for row in chosen.tolist():
            file.seek(begins[row])
            text, date, star = parse_json_line(file.readline(), _review)
            texts.append(text)
            dates.append(date)
            stars.append(star)
    return _oldest_first(texts, owners[chosen], dates, stars, unparsable)


def _review(value: Any) -> tuple[str, str, float]:
    stars = float(value["stars"])
    if not 1 <= stars <= 5:
        raise ValueError(stars)
    return str(value["text"]), str(value["date"]), stars


def _user_of(value: Any) -> str:
    _review(value)
    return sys.intern(value["user_id"])


def _oldest_first(
    texts: list[str], owners: Ints, dates: list[str], stars: Iterable[float], unparsable: Unparsable
) -> Posts:
    """Sorted by their dates as texts, which include the time of day if there is one."""
    posts = Posts(
        texts=texts,
        owners=owners,
        days=days_of(dates, iso_day),
        labels=np.fromiter(stars, np.float32, len(texts)),
        unparsable=unparsable,
    )
    # ISO dates are in the order of time if they are in that of texts.
    return posts.select(np.argsort(np.array(dates, dtype=str), kind="stable"))


def read_amazon(root: Path, *, bad_rows: BadRows) -> tuple[list[str], list[float]]:
    """Texts and stars from 1 to 5 of the CSV files in ``root/amazon/``, in the order of their names."""
    folder = root / "amazon"
    files = sorted(folder.glob("*.csv"))
    require(
        files,
        f"Amazon reviews as CSV files in {folder}",
        "none",
        f"Download some with the columns reviewText and overall, e.g. from {_AMAZON}.",
    )
    texts: list[str] = []
    stars: list[float] = []
    for path in files:
        columns, _ = read_table(path, {"reviewText": TEXT, "overall": STARS}, page=_AMAZON, bad_rows=bad_rows)
        texts += columns["reviewText"]
        stars += columns["overall"]
    return texts, stars
