"""Examples with their owners: posts, reviews or photographs, most of them dated."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

UNDATED = -1
"""Day of an example whose date could not be read."""
UNGROUPED = -1
"""Group of an example without one."""


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """Counts of what a source holds that is not, or not completely, among the examples; reports state them.

    Attributes:
        unparsable: rows that could not be read.
        lines: numbers, from 1, of the first of their lines.
        undated: examples whose date could not be read; they are kept, with day -1.
        short: sentences, posts or reviews with too few words.
        cut: examples with more words than are kept; they are kept, with their first words.
        repeated: examples equal to an earlier one of the same user.
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
        labels: ``(N,)`` float32 ratings, ``(N, K)`` bool if an example has several labels, ``(N,)`` zeros if the
            features are the target (next word).
        owners: ``(N,)`` int64 user numbers from 0 to U - 1, every one with an example.
        days: ``(N,)`` int64 proleptic Gregorian ordinals, as of `datetime.date.toordinal`; -1 if unreadable.
        groups: ``(N,)`` int64 number of the photoset, album or post, never shared by two users; -1 if there is none.
        owner_ids: ``(U,)`` int64 ascending pseudonyms that reports may print: the user's rank among all users of the
            source, which does not depend on who is left out. Never a name or an account.
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

    def select(self, numbers: Tensor) -> "OwnedExamples":
        """Examples ``(n,)`` in the given order; users are numbered again if one has none of them."""
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
