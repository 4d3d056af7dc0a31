"""Reading Yelp's reviews: the open data set's JSON file, or the public CSV file of 10,000."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from datamodules.devices.csv_rows import BadRows, Unparsable, parse_json, read_csv, read_json_lines
from datamodules.devices.dates import days_of, iso_day
from datamodules.devices.user_filter import Ints, Posts, ranks_of

PAGE = "https://www.yelp.com/dataset"
CSV_PAGE = "https://www.kaggle.com/datasets/omkarsabnis/yelp-reviews-dataset"
_COLUMNS = {"user_id": r"\S+", "date": None, "stars": r"[1-5](\.0*)?", "text": None}


def read_yelp_csv(path: Path, *, bad_rows: BadRows) -> Posts:
    """Reviews of a CSV file with the columns user_id, date, stars and text among others.

    Args:
        path: the file.
        bad_rows: what to do with rows that cannot be read.

    Raises:
        InputError: see `datamodules.devices.csv_rows.read_csv`.
    """
    columns, unparsable = read_csv(path, _COLUMNS, page=CSV_PAGE, bad_rows=bad_rows)
    return _oldest_first(
        columns["text"], ranks_of(columns["user_id"]), columns["date"], map(float, columns["stars"]), unparsable
    )


def read_yelp_json(path: Path, *, fewest: int, bad_rows: BadRows) -> Posts:
    """Reviews of ``yelp_academic_dataset_review.json``, one in each line, of users who wrote enough.

    The file has 7 million: it is read line by line, and of the others nothing is kept.

    Args:
        path: the file.
        fewest: reviews of a user; those of others are not kept.
        bad_rows: what to do with lines that cannot be read.

    Raises:
        InputError: the file is missing, or has lines that cannot be read.
    """
    users, begins, unparsable = list[str](), list[int](), Unparsable()
    lines = read_json_lines(path, _user_of, page=PAGE)
    for number, begin, user in tqdm(lines, unit="review", desc=path.name, delay=2, leave=False, disable=None):
        if user is None:
            unparsable.add(number)
        else:
            users.append(user)
            begins.append(begin)
    unparsable.refuse(path, "a review with user_id, date, stars and text in every line", bad_rows)
    owners = ranks_of(users)
    enough = np.bincount(owners) >= fewest if users else np.empty(0, bool)
    kept = np.flatnonzero(enough[owners])
    reviews = list[Any]()
    with path.open("rb") as file:
        for row in kept.tolist():
            file.seek(begins[row])
            reviews.append(parse_json(file.readline(), _review))
    texts, dates, stars = ([review[place] for review in reviews] for place in range(3))
    return _oldest_first(texts, owners[kept], dates, stars, unparsable)


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
    """In the order of their dates as texts, in which a time of the day counts too."""
    posts = Posts(
        texts=texts,
        owners=owners,
        days=days_of(dates, iso_day),
        labels=np.fromiter(stars, np.float32, len(texts)),
        unparsable=unparsable.count,
        lines=tuple(unparsable.lines),
    )
    return posts.select(np.argsort(np.array(dates, dtype=str), kind="stable"))
