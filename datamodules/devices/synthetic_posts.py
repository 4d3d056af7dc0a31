"""Generated posts of users with words of their own: they prove the machinery, not a leak in anybody's writing."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from datamodules.devices.base import Background, OwnedDataModule
from datamodules.devices.user_examples import UNGROUPED, OwnedExamples
from protocol.errors import InputError
from protocol.seeding import PERSISTENT, generator_for
from ranges import PositiveInt

_FIRST_DAY = 731_000
"""Of the first post; a day in 2002."""
_FIRST_WORD = 2
"""0 pads, 1 is the unknown word, as in the vocabularies of real text."""
_OTHERS = 20
"""Writers of the background."""
_FOLLOWERS = 4
"""Words that may follow a word, in every user's language."""


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
    """Posts of one sentence each, one a day, with a rating from 1 to 5 that their words decide.

    A word is drawn from Zipf's law tilted by the user's habits, or, half of the time, among the few that follow the
    word before in the language that all users share.

    Args:
        users: their number.
        posts: of each user.
        vocabulary: token numbers, those of padding and the unknown word included.
        length: most words of a post; the fewest are half as many.
        habit: standard deviation of a user's own log-frequency of a word; 0 for users who all write alike.
        drift: standard deviation of what is added to the habits from the first to the last post.
        seed: seed of every draw.

    Raises:
        InputError: there are too few users, posts or words.
    """
    if min(users, posts) < 2 or vocabulary < _FIRST_WORD + _FOLLOWERS or length < 4 or min(habit, drift) < 0:
        raise InputError(
            expected="two users of two posts at least, 6 token numbers, 4 words and no negative habit",
            found=f"{users} users, {posts} posts, {vocabulary} token numbers, {length} words, habit {habit}",
            way_out="Give larger numbers.",
        )
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
    """``(U, P, W)`` how likely each user is to write each word in each of its posts."""
    common = -torch.arange(1, words + 1).log()
    start = habit * torch.randn(users, 1, words, generator=generator)
    change = drift * torch.randn(users, 1, words, generator=generator)
    time = torch.linspace(0, 1, posts)[None, :, None]
    return (common + start + time * change).softmax(2)


def _write(laws: Tensor, followers: Tensor, length: int, generator: torch.Generator) -> Tensor:
    """``(N, length)`` token numbers padded with 0."""
    count, words = laws.shape
    ends = torch.randint(length // 2, length + 1, (count, 1), generator=generator)
    written = torch.empty(count, length, dtype=torch.int64)
    for place in range(length):
        law = laws
        if place:
            after = one_hot(followers[written[:, place - 1]], words).sum(1) * laws
            law = 0.5 * laws + 0.5 * after / after.sum(1, keepdim=True)
        written[:, place] = torch.multinomial(law, 1, generator=generator)[:, 0]
    return torch.where(torch.arange(length) < ends, written + _FIRST_WORD, 0)


def _ratings(tokens: Tensor, vocabulary: int, generator: torch.Generator) -> Tensor:
    """``(N,)`` from 1 to 5: the mean of what its words are worth, in five parts of equal size."""
    worth = torch.randn(vocabulary, generator=generator)
    worth[0] = 0
    mean = worth[tokens].sum(1) / (tokens > 0).sum(1)
    return 1 + (5 * mean.argsort().argsort() // len(mean)).float()


class SyntheticPosts(OwnedDataModule):
    """Devices of generated writers; the background are other writers of the same language. Needs no files.

    The other arguments are those of `OwnedDataModule`.

    Args:
        writers: number of users.
        posts: of each.
        vocabulary: see `synthetic_posts`.
        length: see `synthetic_posts`.
        habit: see `synthetic_posts`.
        drift: see `synthetic_posts`.
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
        self.writers = writers
        self.posts = posts
        self.vocabulary_size = vocabulary
        self.length = length
        self.habit = habit
        self.drift = drift

    def read(self) -> OwnedExamples:
        return self._write(self.writers + _OTHERS).select(torch.arange(self.writers * self.posts))

    def read_background(self) -> Background:
        everyone = self._write(self.writers + _OTHERS)
        others = slice(self.writers * self.posts, None)
        return Background(everyone.features[others], everyone.labels[others])

    def batch(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {"tokens": features, "label": labels}

    def profile_members(self) -> Tensor:
        """See `OwnedDataModule.profile_members`; a term is a token number."""
        features = self.examples.features
        wanted = [torch.tensor([int(term) for term in profile.terms]) for profile in self.devices.profiles]
        return torch.stack([torch.isin(features, terms).any(1) for terms in wanted])

    def _write(self, users: int) -> OwnedExamples:
        return synthetic_posts(
            users=users,
            posts=self.posts,
            vocabulary=self.vocabulary_size,
            length=self.length,
            habit=self.habit,
            drift=self.drift,
            seed=self.seed,
        )
