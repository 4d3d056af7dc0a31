"""Examples with their owners: posts, reviews or photographs, each of a user, most with a date."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

UNDATED = -1
"""The day of an example whose date could not be read."""
UNGROUPED = -1
"""The group of an example that has none."""


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """What a source holds that is not among the examples, or not whole; a report states it.

    Attributes:
        unparsable: rows that could not be read.
        lines: numbers, from 1, of the first of their lines.
        undated: examples whose date could not be read; they are kept, with day -1.
        short: sentences, posts or reviews of too few words to learn from.
        cut: examples of more words than are kept; they are among the examples, with their first words.
        repeated: examples that the same user has already, to the last token.
        users: users left out because they have too few examples.
    """

    unparsable: int = 0
    lines: tuple[int, ...] = ()
    undated: int = 0
    short: int = 0
    cut: int = 0
    repeated: int = 0
    users: int = 0


@dataclass(frozen=True, kw_only=True)
class OwnedExamples:
    """Examples with their owners, in the order of the source.

    Attributes:
        features: ``(N, L)`` int64 token numbers padded with 0, or ``(N, channels, height, width)`` uint8 images.
        labels: ``(N,)`` float32 ratings, ``(N, K)`` bool where an example has several labels, ``(N,)`` zeros where the
            features are the target (next word).
        owners: ``(N,)`` int64 user numbers from 0 to U - 1, every one with an example.
        days: ``(N,)`` int64 proleptic Gregorian ordinals, as of `datetime.date.toordinal`; -1 where unreadable.
        groups: ``(N,)`` int64 numbers of the photoset, album or post, no two users with one in common; -1 where none.
        owner_ids: ``(U,)`` int64 ascending pseudonymous numbers that reports may print: the user's rank among all users
            of the source, which stays the same whatever is left out. Never a name or an account.
        dropped: counts of what was left out.
    """

    features: Tensor
    labels: Tensor
    owners: Tensor
    days: Tensor
    groups: Tensor
    owner_ids: Tensor
    dropped: Dropped = field(default_factory=Dropped)

    def __len__(self) -> int:
        return len(self.owners)

    @property
    def num_users(self) -> int:
        """Number of users U."""
        return len(self.owner_ids)

    def counts(self) -> Tensor:
        """``(U,)`` number of examples of every user."""
        return self.owners.bincount(minlength=self.num_users)

    def examples_of(self) -> tuple[Tensor, ...]:
        """For every user the ascending numbers of its examples."""
        return torch.split(self.owners.argsort(stable=True), self.counts().tolist())

    def select(self, numbers: Tensor) -> "OwnedExamples":
        """Some examples, in the given order; users are numbered anew where one has none of them.

        Args:
            numbers: ``(n,)`` int64 numbers of examples.
        """
        users, owners = torch.unique(self.owners[numbers], return_inverse=True)
        return OwnedExamples(
            features=self.features[numbers],
            labels=self.labels[numbers],
            owners=owners,
            days=self.days[numbers],
            groups=self.groups[numbers],
            owner_ids=self.owner_ids[users],
            dropped=self.dropped,
        )
