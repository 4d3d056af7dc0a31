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

    def select(self, positions: Ints) -> "Posts":
        """The posts with the given numbers, in their order."""
        return replace(
            self,
            texts=[self.texts[position] for position in positions.tolist()],
            owners=self.owners[positions],
            days=self.days[positions],
            labels=self.labels[positions],
        )


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
    users_of_text: dict[str, set[int]] = defaultdict(set)
    for text, owner in zip(posts.texts, posts.owners.tolist(), strict=True):
        users_of_text["".join(text.split())].add(owner)
    texts_of_user: Counter[int] = Counter()
    shared_texts: Counter[tuple[int, int]] = Counter()
    for users in users_of_text.values():
        texts_of_user.update(users)
        # Pairs are counted for rare texts alone; a common phrase would also give very many pairs.
        if 1 < len(users) <= _COMMON:
            shared_texts.update(itertools.combinations(sorted(users), 2))
    alike = []
    for (first, second), count in shared_texts.items():
        fewest_texts = min(texts_of_user[first], texts_of_user[second])
        if count >= _FEWEST_SHARED and count > share * fewest_texts:
            alike.append((first, second))
    return sorted(alike)


def warn_of_users_alike(posts: Posts, name: str) -> None:
    """Logs a warning if users share most of their texts, since their devices' owners cannot be distinguished."""
    alike = users_alike(posts)
    if not alike:
        return
    pairs = ", ".join(f"{first} and {second}" for first, second in alike[:5])
    more = ", ..." if len(alike) > 5 else ""
    _logger.warning(
        "%s: %d pair(s) of users share most of their texts and may be one person (numbers among all users: %s%s). "
        "Remove one of each pair from the data.",
        name,
        len(alike),
        pairs,
        more,
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
    positions = np.arange(len(owners))
    if dated_only:
        positions = np.flatnonzero(days != UNDATED)
    counts = np.bincount(owners[positions], minlength=int(owners.max(initial=-1)) + 1)
    with_enough = np.flatnonzero(counts >= users.fewest)
    dated = "dated " if dated_only else ""
    require(
        len(with_enough),
        f"a user of {name} with at least {users.fewest} {dated}posts or photos",
        f"{len(np.unique(owners))} users with at most {int(counts.max(initial=0))}",
        "Set users.fewest lower; the paper's number assumes the whole data set.",
    )
    # Those with most posts come first; of equal ones, the smaller number.
    order = np.argsort(-counts[with_enough], kind="stable")
    chosen = with_enough[order][: users.most_users]
    positions = positions[np.isin(owners[positions], chosen)]
    if users.most_examples is not None:
        positions = _at_most(positions, owners, users.most_examples, seed)
    return positions, len(np.unique(owners)) - len(with_enough)


def _at_most(numbers: Ints, owners: Ints, most: int, seed: int) -> Ints:
    # Every post of the source has a random key, so that another selection of users keeps the same posts of a user.
    keys = torch.rand(len(owners), generator=generator_for(seed, "posts of a user", PERSISTENT)).numpy()[numbers]
    order = np.lexsort((keys, owners[numbers]))
    sorted_owners = owners[numbers][order]
    first_of_owner = np.searchsorted(sorted_owners, sorted_owners, side="left")
    rank_within_owner = np.arange(len(order)) - first_of_owner
    return np.sort(numbers[order[rank_within_owner < most]])
