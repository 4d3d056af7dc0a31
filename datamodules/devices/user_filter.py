"""What people wrote, before it becomes numbers: which users and posts are kept."""

import itertools
import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from datamodules.devices.user_examples import UNDATED
from protocol.errors import InputError
from protocol.seeding import PERSISTENT, generator_for

Ints = npt.NDArray[np.int64]
_FEWEST_SHARED = 3
"""Texts that two users must have in common to be taken for one: fewer are greetings and quotations."""
_COMMON = 10
"""Users of one text above which it is nobody's own."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class UserFilter:
    """Which users take part.

    Attributes:
        fewest: posts, reviews or photographs; users with fewer are left out (section 5: 1,000 posts, 500 reviews, 500
            images of OpenImages, 100 of PIPA).
        most_users: of the others the ones with most, equal ones by their number; None for all.
        most_examples: posts, reviews or photographs of a user, drawn at random; None for all.
    """

    fewest: int = 1
    most_users: int | None = None
    most_examples: int | None = None

    def __post_init__(self) -> None:
        """Refuses numbers below 1.

        Raises:
            InputError: one is.
        """
        for name in ("fewest", "most_users", "most_examples"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(expected=f"{name} of at least 1", found=str(value), way_out="Give a larger number.")


@dataclass(frozen=True, kw_only=True)
class Posts:
    """Texts and their authors, those of one author and day oldest first.

    Attributes:
        texts: ``N`` of them.
        owners: ``(N,)`` the author's rank among all of the source.
        days: ``(N,)`` see `datamodules.devices.user_examples.OwnedExamples`.
        labels: ``(N,)`` float32 ratings; zeros where there are none.
        unparsable: rows that could not be read.
        lines: first of their lines.
    """

    texts: Sequence[str]
    owners: Ints
    days: Ints
    labels: npt.NDArray[np.float32]
    unparsable: int = 0
    lines: tuple[int, ...] = ()

    def select(self, kept: Ints) -> "Posts":
        """The posts of some numbers, in their order."""
        return Posts(
            texts=[self.texts[number] for number in kept.tolist()],
            owners=self.owners[kept],
            days=self.days[kept],
            labels=self.labels[kept],
            unparsable=self.unparsable,
            lines=self.lines,
        )


def ranks_of(accounts: Sequence[str], *, numeric: bool = False) -> Ints:
    """``(N,)`` rank of every account among all different ones: a pseudonym that names nobody.

    Args:
        accounts: of N posts.
        numeric: whether they are numbers, and ordered as such.
    """
    values = np.array([int(account) for account in accounts] if numeric else accounts)
    return np.unique(values, return_inverse=True)[1].astype(np.int64).reshape(-1)


def users_alike(posts: Posts, *, share: float = 0.5) -> list[tuple[int, int]]:
    """Pairs of users of whom one shares most of its texts with the other: one person under two names, or a mirror.

    Args:
        posts: of all users; texts are compared without their white space.
        share: of the different texts of the user with fewer, above which two are taken for one.

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
    """Logs how many pairs of users seem to be one: their devices' owners cannot be told apart, nor counted as two.

    Args:
        posts: of the users that take part.
        name: of the data set.
    """
    alike = users_alike(posts)
    if alike:
        shown = ", ".join(f"{first} and {second}" for first, second in alike[:5])
        more = ", ..." if len(alike) > 5 else ""
        _logger.warning(
            "%s: %d pair(s) of users share most of their texts and may be one person (numbers among all users: %s%s). "
            "Remove one of each from the data: splits by user take them for two.",
            *(name, len(alike), shown, more),
        )


def kept_posts(
    owners: Ints, days: Ints, users: UserFilter, *, dated_only: bool, seed: int, name: str
) -> tuple[Ints, int]:
    """The posts or photographs of the users that take part.

    Args:
        owners: ``(N,)`` user numbers.
        days: ``(N,)``; -1 where undated.
        users: which take part.
        dated_only: leave undated ones out first.
        seed: of the draw of a user's examples.
        name: of the data set, for the error.

    Returns:
        Ascending numbers of what is kept, and how many users are left out because they have too few.

    Raises:
        InputError: nobody has enough.
    """
    there = np.flatnonzero(days != UNDATED) if dated_only else np.arange(len(owners))
    counts = np.bincount(owners[there], minlength=int(owners.max(initial=-1)) + 1)
    enough = np.flatnonzero(counts >= users.fewest)
    if not len(enough):
        raise InputError(
            expected=f"a user of {name} with at least {users.fewest} {'dated ' if dated_only else ''}posts or photos",
            found=f"{len(np.unique(owners))} users with at most {int(counts.max(initial=0))}",
            way_out="Set users.fewest lower; the paper's number supposes the whole data set.",
        )
    chosen = enough[np.argsort(-counts[enough], kind="stable")][: users.most_users]
    there = there[np.isin(owners[there], chosen)]
    if users.most_examples is not None:
        there = _at_most(there, owners, users.most_examples, seed)
    return there, len(np.unique(owners)) - len(enough)


def _at_most(numbers: Ints, owners: Ints, most: int, seed: int) -> Ints:
    """A random draw of each user's posts, at most so many."""
    keys = torch.rand(len(owners), generator=generator_for(seed, "posts of a user", PERSISTENT)).numpy()[numbers]
    order = np.lexsort((keys, owners[numbers]))
    sorted_owners = owners[numbers][order]
    begins = np.searchsorted(sorted_owners, sorted_owners, side="left")
    return np.sort(numbers[order[np.arange(len(order)) - begins < most]])
