"""Users who write: posts become token numbers."""

import abc
import functools
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from datamodules.devices.base import Background, OwnedDataModule
from datamodules.devices.csv_rows import BadRows
from datamodules.devices.tokenization import TextOptions, encode_background, encode_posts
from datamodules.devices.user_examples import OwnedExamples
from datamodules.devices.user_filter import Posts, UserFilter, kept_posts, warn_of_users_alike
from datamodules.devices.vocabulary import UNKNOWN, Vocabulary


class OwnedTextDataModule(OwnedDataModule):
    """Devices with text; the other arguments are those of `OwnedDataModule`. A subclass reads the posts.

    A learner gets ``tokens (n, L)`` int64, padded with 0, and where there are ratings ``label (n,)`` float32.

    Args:
        text: how text becomes examples.
        users: see `OwnedDataModule`.
        bad_rows: what to do with rows of the file that cannot be read.

    Attributes:
        unit: an example is a sentence or a whole text.
        rated: whether examples have labels.
    """

    unit: Literal["sentence", "text"]
    rated: bool

    def __init__(
        self,
        *,
        text: TextOptions = TextOptions(),  # noqa: B008 - frozen
        users: UserFilter = UserFilter(),  # noqa: B008 - frozen
        bad_rows: BadRows = "error",
        **kwargs: Any,
    ) -> None:
        super().__init__(users=users, **kwargs)
        self.text = text
        self.bad_rows: BadRows = bad_rows

    @abc.abstractmethod
    def read_posts(self) -> Posts:
        """Reads what all users of the source wrote."""

    @abc.abstractmethod
    def background_texts(self) -> tuple[Sequence[str], Sequence[float]]:
        """Texts of others, and their ratings (zeros where there are none)."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The words that the model knows."""
        return self._read[1]

    @property
    def vocabulary_size(self) -> int:
        """Numbers of the vocabulary, as asked for: a smaller text leaves the last ones without a word."""
        return self.text.vocabulary

    def read(self) -> OwnedExamples:
        """See `OwnedDataModule.read`; the groups are the posts."""
        return self._read[0]

    def read_background(self) -> Background:
        """See `OwnedDataModule.read_background`."""
        texts, ratings = self.background_texts()
        features, sources = encode_background(texts, self.unit, self.text, self.vocabulary)
        return Background(features, torch.tensor(ratings, dtype=torch.float32)[torch.from_numpy(sources)])

    def batch(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """See `OwnedDataModule.batch`."""
        return {"tokens": features, "label": labels} if self.rated else {"tokens": features}

    def profile_members(self) -> Tensor:
        """See `OwnedDataModule.profile_members`; a word that is not in the vocabulary is in no example."""
        features = self.examples.features
        return torch.stack(
            [
                torch.isin(features, torch.tensor([n for n in map(self.vocabulary.number, terms) if n != UNKNOWN])).any(
                    1
                )
                for terms in (tuple(map(str.lower, profile.terms)) for profile in self.devices.profiles)
            ]
        )

    @functools.cached_property
    def _read(self) -> tuple[OwnedExamples, Vocabulary]:
        posts = self.read_posts()
        kept, left_out = kept_posts(
            posts.owners, posts.days, self.users, dated_only=self.dated_only, seed=self.seed, name=self.name
        )
        taking_part = posts.select(kept)
        warn_of_users_alike(taking_part, self.name)
        return encode_posts(taking_part, self.unit, self.text, wordless=self.devices.too_few, users_left_out=left_out)
