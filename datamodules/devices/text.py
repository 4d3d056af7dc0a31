"""Base class of data sets of users who write: posts become token numbers."""

import abc
import functools
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from fedleak.client.network_tokens import NetworkTokens, network_tokens
from fedleak.core.io.tables import BadRows
from fedleak.datamodules.devices.base import Background, OwnedDataModule
from fedleak.datamodules.devices.tokenization import (
    PADDING,
    TokenizationOptions,
    Vocabulary,
    encode_posts,
    tokens_of,
)
from fedleak.datamodules.devices.user_examples import OwnedExamples
from fedleak.datamodules.devices.user_filter import Posts, UserFilter, kept_posts, warn_of_users_alike


class OwnedTextDataModule(OwnedDataModule):
    """Devices with text. A subclass reads the posts; the groups of the examples are the posts.

    A learner gets ``tokens (n, L)`` int64, padded with 0, and where there are ratings ``label (n,)`` float32.

    Args:
        text: conversion of text into examples.
        bad_rows: what to do with rows of the file that cannot be read.

    Attributes:
        unit: whether an example is a sentence or a whole text.
        rated: whether examples have labels.
    """

    unit: Literal["sentence", "text"]
    rated: bool

    def __init__(
        self,
        *,
        text: TokenizationOptions = TokenizationOptions(),  # noqa: B008 - frozen
        users: UserFilter = UserFilter(),  # noqa: B008 - frozen
        bad_rows: BadRows = "error",
        **kwargs: Any,
    ) -> None:
        super().__init__(users=users, **kwargs)
        self.text = text
        self.bad_rows: BadRows = bad_rows

    @abc.abstractmethod
    def read_posts(self) -> Posts:
        """Reads the posts of all users of the source."""

    @abc.abstractmethod
    def background_texts(self) -> tuple[Sequence[str], Sequence[float]]:
        """Background texts and their ratings, zeros if there are none."""

    @property
    def vocabulary(self) -> Vocabulary | NetworkTokens:
        """The words that the model knows."""
        return self._read[1]

    @property
    def vocabulary_size(self) -> int:
        """Size of the vocabulary as configured; with fewer different words the last numbers are unused."""
        if self.text.tokens is not None:
            return network_tokens(self.text.tokens).size
        return self.text.vocabulary

    def read(self) -> OwnedExamples:
        return self._read[0]

    def read_background(self) -> Background:
        texts, ratings = self.background_texts()
        tokens = tokens_of(texts, self.unit, self.text)
        features = self.vocabulary.encode(tokens.words, self.text.words)
        # Each example has the rating of its text.
        labels = torch.tensor(ratings, dtype=torch.float32)[torch.from_numpy(tokens.sources)]
        return Background(features, labels)

    def batch(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        if self.rated:
            return {"tokens": features, "label": labels}
        return {"tokens": features}

    def raw_features(self) -> dict[str, Tensor]:
        """``words`` ``(num_clients, vocabulary)`` float32: square root of each word's share of a client's."""
        counts = torch.zeros(self.num_clients, self.vocabulary_size)
        for client, numbers in enumerate(self.client_examples()):
            texts, _ = self.raw_examples(numbers)
            words = texts.flatten()
            counts[client] = words[words != PADDING].bincount(minlength=self.vocabulary_size)
        shares: Tensor = counts / counts.sum(1, keepdim=True).clamp(min=1)
        return {"words": shares.sqrt()}

    def profile_members(self, examples: OwnedExamples | Background) -> Tensor:
        """``(P, N)`` True for the examples of each profile; a word outside the vocabulary is in no example."""
        members = []
        for profile in self.devices.profiles:
            numbers = [self.vocabulary.known_number(term) for term in profile.terms]
            terms = torch.tensor([number for number in numbers if number is not None])
            members.append(torch.isin(examples.features, terms).any(1))
        return torch.stack(members)

    @functools.cached_property
    def _read(self) -> tuple[OwnedExamples, Vocabulary | NetworkTokens]:
        posts = self.read_posts()
        positions, left_out = kept_posts(
            posts.owners, posts.days, self.users, dated_only=self.dated_only, seed=self.seed, name=self.name
        )
        selected = posts.select(positions)
        warn_of_users_alike(selected, self.name)
        return encode_posts(selected, self.unit, self.text, wordless=self.devices.too_few, users_left_out=left_out)
