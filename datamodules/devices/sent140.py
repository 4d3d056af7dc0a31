"""Sentiment140: users of Twitter, their tweets and the sentiment of each."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedleak.core.errors import InputError, require
from fedleak.core.io.files import check_file
from fedleak.core.io.tables import BadRows, Unparsable
from fedleak.datamodules.devices.dates import tweet_moment
from fedleak.datamodules.devices.text import OwnedTextDataModule
from fedleak.datamodules.devices.tokenization import TokenizationOptions
from fedleak.datamodules.devices.user_filter import Posts, UserFilter, ranks_of
from fedleak.datamodules.devices.yelp import read_amazon

_PAGE = "https://leaf.cmu.edu"
_POSITIVE = {0: 0.0, 1: 1.0, 4: 1.0, "0": 0.0, "1": 1.0, "4": 1.0}
"""LEAF's labels are 0 and 1, those of Sentiment140's own files 0 and 4."""


class Sentiment140(OwnedTextDataModule):
    """Sentiment140 by user, tweets with the label 0 (sad) or 1 (happy); many users with few tweets each.

    Size: 1.6 million tweets of 660,120 users. The deanonymization paper does not use it.

    Files: ``root/sent140/all_data.json``, which LEAF's scripts (https://leaf.cmu.edu) write. Background: Amazon's
    reviews (`read_amazon`), of which those with four and five stars count as happy.

    References:
        [Go09].
        [Caldas18].
    """

    name = "sent140"
    folders = (name,)
    unit = "text"
    rated = True

    def __init__(
        self,
        *,
        users: UserFilter = UserFilter(fewest=10),  # noqa: B008 - frozen
        text: TokenizationOptions = TokenizationOptions(vocabulary=1000, words=32, fewest_words=1),  # noqa: B008 - frozen
        **kwargs: Any,
    ) -> None:
        super().__init__(users=users, text=text, **kwargs)

    def read_posts(self) -> Posts:
        return read_sent140(self.data_root() / self.name / "all_data.json", bad_rows=self.bad_rows)

    def background_texts(self) -> tuple[Sequence[str], Sequence[float]]:
        texts, stars = read_amazon(self.data_root(), bad_rows=self.bad_rows)
        return texts, [float(star > 3) for star in stars]


def read_sent140(path: Path, *, bad_rows: BadRows) -> Posts:
    """Tweets of LEAF's file: per user a list of ``[id, date, query, user, text, part]`` and one of labels."""
    check_file(path, _PAGE)
    # The file has two lists for each user, of the tweets' fields and of their labels.
    users: list[str] = []
    tweets: list[_Tweet | None] = []
    try:
        content = json.loads(path.read_bytes())["user_data"]
        for user, columns in content.items():
            for fields, label in zip(columns["x"], columns["y"], strict=True):
                users.append(user)
                tweets.append(_tweet(fields, label))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(
            expected="LEAF's user_data with as many x as y of every user",
            found=f"{type(error).__name__}: {error} in {path}",
            way_out=f"Make it again with LEAF's scripts, {_PAGE}.",
        ) from None
    bad = [number for number, tweet in enumerate(tweets, 1) if tweet is None]
    require(
        not bad or bad_rows == "drop",
        "six fields and a label 0, 1 or 4 of every tweet",
        f"{len(bad)} others in {path}, as numbers {', '.join(map(str, bad[:5]))}",
        "Correct them, or set bad_rows: drop to leave them out.",
    )
    complete = [(user, tweet) for user, tweet in zip(users, tweets, strict=True) if tweet is not None]
    days = np.array([tweet.day for _, tweet in complete], np.int64)
    seconds = np.array([tweet.second for _, tweet in complete], np.int64)
    posts = Posts(
        texts=[tweet.text for _, tweet in complete],
        owners=ranks_of([user for user, _ in complete]),
        days=days,
        labels=np.array([tweet.label for _, tweet in complete], np.float32),
        unparsable=Unparsable(len(bad), bad[:5]),
    )
    # Oldest first; the file is sorted by user.
    return posts.select(np.lexsort((seconds, days)))


class _Tweet(NamedTuple):
    """A tweet with its day, its second of the day, and its label."""

    day: int
    second: int
    text: str
    label: float


def _tweet(fields: Any, label: Any) -> _Tweet | None:
    """A tweet of the file; None if its form is another."""
    try:
        _, date, _, _, text, *_ = fields
        # True equals 1, but is no label of the files.
        if isinstance(label, bool):
            return None
        day, second = tweet_moment(str(date))
        return _Tweet(day, second, str(text), _POSITIVE[label])
    except (KeyError, TypeError, ValueError):
        return None
