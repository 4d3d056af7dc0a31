"""Posts of users, and the selection of users and posts."""

import itertools
import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from fedleak.core.errors import require
from fedleak.core.io.tables import Unparsable
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.datamodules.devices.user_examples import UNDATED

Ints = npt.NDArray[np.int64]
_FEWEST_SHARED = 3
"""Texts that two users must share to count as one person; fewer are greetings and quotations."""
_COMMON = 10
"""A text of more users than these is a common phrase."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class UserFilter:
    """Selection of users.

    Attributes:
        fewest: least number of posts, reviews or photographs of a user (section 5: 1,000 posts, 500 reviews, 500 images
            of OpenImages, 100 of PIPA).
        most_users: number of users with the most examples, ties broken by their number; None for all.
        most_examples: number of posts, reviews or photographs of a user, drawn at random; None for all.
    """

    fewest: int = 1
    most_users: int | None = None
    most_examples: int | None = None

    def __post_init__(self) -> None:
        for name in ("fewest", "most_users", "most_examples"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"{name} of at least 1", value, "Give a larger number.")


@dataclass(frozen=True, kw_only=True)
class Posts:
    """Texts with their authors; those of one author and day are sorted oldest first.

    Attributes:
        texts: N texts.
        owners: ``(N,)`` rank of the author among all of the source.
        days: ``(N,)`` as `OwnedExamples.days`.
        labels: ``(N,)`` float32 ratings; zeros if there are none.
        unparsable: rows that could not be read.
    """

    texts: Sequence[str]
    owners: Ints
    days: Ints
    labels: npt.NDArray[np.float32]
    unparsable: Unparsable

    def select(self, kept: Ints) -> "Posts":
        """The posts with the given numbers, in their order."""
        texts = [self.texts[number] for number in kept.tolist()]
        return replace(self, texts=texts, owners=self.owners[kept], days=self.days[kept], labels=self.labels[kept])


def ranks_of(accounts: Sequence[str] | Sequence[int]) -> Ints:
    """``(N,)`` rank of every post's account among all different accounts, which serves as a pseudonym."""
    return np.unique(np.array(accounts), return_inverse=True)[1].astype(np.int64).reshape(-1)


def users_alike(posts: Posts, *, share: float = 0.5) -> list[tuple[int, int]]:
    """Pairs of users who share most texts, and so may be one person with two accounts or a mirrored blog.

    Args:
        posts: posts of all users; texts are compared without their white space.
        share: least share of common texts among the different texts of the user with fewer.

    Returns:
        Owners, the smaller number first, in ascending order.
    """
    users: dict[str, set[int]] = defaultdict(set)
    for text, owner in zip(posts.texts, posts.owners.tolist(), strict=True):
        users["".join(text.split())].add(owner)
    own = Counter(owner for owners in users.values() for owner in owners)
    shared = Counter(
        pair
        for owners in users.values()
        if 1 < len(owners) <= _COMMON
        for pair in itertools.combinations(sorted(owners), 2)
    )
    return sorted(
        pair for pair, count in shared.items() if count >= _FEWEST_SHARED and count > share * min(own[u] for u in pair)
    )


def warn_of_users_alike(posts: Posts, name: str) -> None:
    """Logs a warning if users share most of their texts, since their devices' owners cannot be distinguished."""
    alike = users_alike(posts)
    if alike:
        shown = ", ".join(f"{first} and {second}" for first, second in alike[:5])
        more = ", ..." if len(alike) > 5 else ""
        _logger.warning(
            "%s: %d pair(s) of users share most of their texts and may be one person (numbers among all users: %s%s). "
            "Remove one of each pair from the data.",
            *(name, len(alike), shown, more),
        )


def kept_posts(
    owners: Ints, days: Ints, users: UserFilter, *, dated_only: bool, seed: int, name: str
) -> tuple[Ints, int]:
    """Selects posts or photographs by their users.

    Args:
        owners: ``(N,)`` user numbers.
        days: ``(N,)``; -1 if undated.
        users: selection of users.
        dated_only: leave undated posts out first.
        seed: seed of the draw of a user's posts.
        name: name of the data set, for the error.

    Returns:
        Ascending numbers of the selected posts, and the number of users left out because they have too few.
    """
    there = np.flatnonzero(days != UNDATED) if dated_only else np.arange(len(owners))
    counts = np.bincount(owners[there], minlength=int(owners.max(initial=-1)) + 1)
    enough = np.flatnonzero(counts >= users.fewest)
    require(
        len(enough),
        f"a user of {name} with at least {users.fewest} {'dated ' if dated_only else ''}posts or photos",
        f"{len(np.unique(owners))} users with at most {int(counts.max(initial=0))}",
        "Set users.fewest lower; the paper's number assumes the whole data set.",
    )
    chosen = enough[np.argsort(-counts[enough], kind="stable")][: users.most_users]
    there = there[np.isin(owners[there], chosen)]
    if users.most_examples is not None:
        there = _at_most(there, owners, users.most_examples, seed)
    return there, len(np.unique(owners)) - len(enough)


def _at_most(numbers: Ints, owners: Ints, most: int, seed: int) -> Ints:
    keys = torch.rand(len(owners), generator=generator_for(seed, "posts of a user", PERSISTENT)).numpy()[numbers]
    order = np.lexsort((keys, owners[numbers]))
    sorted_owners = owners[numbers][order]
    begins = np.searchsorted(sorted_owners, sorted_owners, side="left")
    return np.sort(numbers[order[np.arange(len(order)) - begins < most]])
