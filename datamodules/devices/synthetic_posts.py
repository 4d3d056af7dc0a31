"""Synthetic posts of users with words of their own; results on them say nothing about real data."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedleak.core.errors import require
from fedleak.core.ranges import PositiveInt
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.datamodules.devices.base import Background, OwnedDataModule
from fedleak.datamodules.devices.user_examples import UNGROUPED, OwnedExamples

_FIRST_DAY = 731_000
"""Day of the first post, in 2002."""
_FIRST_WORD = 2
"""0 is padding, 1 the unknown word, as in the vocabularies of real text."""
_OTHERS = 20
"""Writers of the background."""
_FOLLOWERS = 4
"""Words that may follow a word in the language that all users share."""


def synthetic_posts(
    *,
    users: int = 20,
    posts: int = 40,
    vocabulary: int = 60,
    length: int = 10,
    habit: float = 2.0,
    drift: float = 0.0,
    seed: int = 0,
) -> OwnedExamples:
    """Posts of one sentence, one per day and user, with a rating from 1 to 5 that depends on their words.

    A word is drawn from Zipf's law, tilted by the user's habits, or with probability one half from the few words that
    follow the previous one in the language that all users share.
    The arguments are those of `SyntheticPosts`.
    """
    limits = {
        "users": (users, 2),
        "posts": (posts, 2),
        "vocabulary": (vocabulary, _FIRST_WORD + _FOLLOWERS),
        "length": (length, 4),
        "habit": (habit, 0),
        "drift": (drift, 0),
    }
    for name, (value, least) in limits.items():
        require(value >= least, f"{name} of at least {least}", value, "Give a larger number.")
    # The language is a set of words that may follow each word, common to all users; habits are a user's own.
    generator = generator_for(seed, "synthetic posts", PERSISTENT)
    words = vocabulary - _FIRST_WORD
    laws = _laws(users, posts, words, habit, drift, generator).flatten(0, 1)
    followers = torch.randint(words, (words, _FOLLOWERS), generator=generator)
    tokens = _write(laws, followers, length, generator)
    owners = torch.arange(users).repeat_interleave(posts)
    return OwnedExamples(
        features=tokens,
        labels=_ratings(tokens, vocabulary, generator),
        owners=owners,
        days=_FIRST_DAY + torch.arange(posts).repeat(users),
        groups=torch.full_like(owners, UNGROUPED),
        owner_ids=torch.arange(users),
    )


def _laws(users: int, posts: int, words: int, habit: float, drift: float, generator: torch.Generator) -> Tensor:
    """``(U, P, W)`` probability of each word in each post of each user."""
    # Zipf's law of the language, p ~ 1 / rank, times the habits of a user, which drift from the first post to the last.
    zipf = -torch.arange(1, words + 1).log()
    habits = habit * torch.randn(users, 1, words, generator=generator)
    change = drift * torch.randn(users, 1, words, generator=generator)
    time = torch.linspace(0, 1, posts)[None, :, None]
    return (zipf + habits + time * change).softmax(2)


def _write(laws: Tensor, followers: Tensor, length: int, generator: torch.Generator) -> Tensor:
    """``(N, length)`` token numbers padded with 0."""
    count, words = laws.shape
    ends = torch.randint(length // 2, length + 1, (count, 1), generator=generator)
    written = torch.empty(count, length, dtype=torch.int64)
    for position in range(length):
        law = laws
        if position:
            # Half of the words follow the one before, in the proportions of the user's habits; the others are free.
            after_previous = one_hot(followers[written[:, position - 1]], words).sum(1) * laws
            law = 0.5 * laws + 0.5 * after_previous / after_previous.sum(1, keepdim=True)
        written[:, position] = torch.multinomial(law, 1, generator=generator)[:, 0]
    return torch.where(torch.arange(length) < ends, written + _FIRST_WORD, 0)


def _ratings(tokens: Tensor, vocabulary: int, generator: torch.Generator) -> Tensor:
    """``(N,)`` ratings from 1 to 5: quintile of the mean value of the words."""
    worth = torch.randn(vocabulary, generator=generator)
    worth[0] = 0  # padding
    mean_worth = worth[tokens].sum(1) / (tokens > 0).sum(1)
    rank = mean_worth.argsort().argsort()
    return 1 + (5 * rank // len(mean_worth)).float()


class SyntheticPosts(OwnedDataModule):
    """Devices of generated writers; the background is other writers of the same language. Needs no files.

    Args:
        writers: number of users.
        posts: number of posts of each user.
        vocabulary: number of token numbers, including those of padding and the unknown word.
        length: largest number of words of a post; the smallest is half of it.
        habit: standard deviation of a user's own log-frequency of a word; 0 for users who all write alike.
        drift: standard deviation of the change of the habits from the first to the last post.
    """

    name = "synthetic-posts"
    folders = (name,)
    rated = False

    def __init__(
        self,
        *,
        writers: PositiveInt = 20,
        posts: PositiveInt = 40,
        vocabulary: PositiveInt = 60,
        length: PositiveInt = 10,
        habit: float = 2.0,
        drift: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        # The background has writers of its own, so that `synthetic_posts` cannot see how few are asked for.
        require(writers >= 2, "writers of at least 2", writers, "Give a larger number.")
        self.writers = writers
        self.vocabulary_size = vocabulary
        self.of_users = writers * posts
        self._options = {"posts": posts, "length": length, "habit": habit, "drift": drift}

    def read(self) -> OwnedExamples:
        return self._write().select(torch.arange(self.of_users))

    def read_background(self) -> Background:
        everyone = self._write()
        return Background(everyone.features[self.of_users :], everyone.labels[self.of_users :])

    def batch(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {"tokens": features, "label": labels}

    def profile_members(self, examples: OwnedExamples | Background) -> Tensor:
        """``(P, N)`` True for the examples of each profile; a term is a token number."""
        members = []
        for profile in self.devices.profiles:
            terms = torch.tensor([int(term) for term in profile.terms])
            members.append(torch.isin(examples.features, terms).any(1))
        return torch.stack(members)

    def _write(self) -> OwnedExamples:
        options: dict[str, Any] = self._options
        return synthetic_posts(users=self.writers + _OTHERS, vocabulary=self.vocabulary_size, seed=self.seed, **options)
