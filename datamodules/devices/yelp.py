"""Yelp (the open data set): reviewers, and the stars that they give."""

from collections.abc import Sequence
from typing import Any

from datamodules.devices.background_files import read_amazon
from datamodules.devices.text import OwnedTextDataModule
from datamodules.devices.tokenization import TextOptions
from datamodules.devices.user_filter import Posts, UserFilter
from datamodules.devices.yelp_files import read_yelp_csv, read_yelp_json


class Yelp(OwnedTextDataModule):
    """Whole reviews and their stars from 1 to 5; the paper has 85,615 of 118 users.

    Reads ``root/yelp/yelp_academic_dataset_review.json``, or else ``root/yelp/yelp.csv``, whose most diligent user has
    38. The background is Amazon's reviews in ``root/amazon/*.csv``. The other arguments are those of
    `OwnedTextDataModule`.

    Args:
        users: see `OwnedDataModule`; the paper's have at least 500 reviews.
        text: see `OwnedTextDataModule`.
    """

    name = "yelp"
    folders = (name,)
    unit = "text"
    rated = True

    def __init__(
        self,
        *,
        users: UserFilter = UserFilter(fewest=500),  # noqa: B008 - frozen
        text: TextOptions = TextOptions(vocabulary=1000, words=200, fewest_words=1),  # noqa: B008 - frozen
        **kwargs: Any,
    ) -> None:
        super().__init__(users=users, text=text, **kwargs)

    def read_posts(self) -> Posts:
        folder = self.data_root() / self.name
        path = folder / "yelp_academic_dataset_review.json"
        if path.is_file():
            return read_yelp_json(path, fewest=self.users.fewest, bad_rows=self.bad_rows)
        return read_yelp_csv(folder / "yelp.csv", bad_rows=self.bad_rows)

    def background_texts(self) -> tuple[Sequence[str], Sequence[float]]:
        return read_amazon(self.data_root(), bad_rows=self.bad_rows)
