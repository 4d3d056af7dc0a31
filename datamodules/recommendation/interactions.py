"""Interactions of users with items, and the labelled examples and held-out items made from them."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from fedleak.core.errors import InputError
from fedleak.core.seeding import generator_for

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Interactions:
    """Interactions, sorted by user and within a user by time.

    Attributes:
        users: ``(P,)`` user numbers from 0.
        items: ``(P,)`` item numbers from 0.
        num_users: number of users; each has at least one interaction.
        num_items: number of items in the catalogue.
        liked: ``(P,)`` whether the user liked the item; None if every interaction counts as liked.
        ranks: ``(num_users,)`` number of each user among all of the source; None if nobody was left out.
    """

    users: Ints
    items: Ints
    num_users: int
    num_items: int
    liked: Bools | None = None
    ranks: Ints | None = None

    @property
    def offsets(self) -> Ints:
        """``(num_users + 1,)`` position at which each user's interactions begin."""
        return np.concatenate([[0], np.cumsum(np.bincount(self.users, minlength=self.num_users))])

    def hold_out_last(self) -> tuple["Interactions", Ints]:
        """Splits off every user's last liked item; a user with a single liked item keeps it.

        Returns:
            The other interactions, and ``(num_users,)`` held-out items, -1 if there is none.
        """
        positions = np.arange(len(self.items))
        if self.liked is not None:
            positions = np.flatnonzero(self.liked)
        owners = self.users[positions]
        has_several = np.bincount(owners, minlength=self.num_users) > 1
        # Sorted by user: the last of a user stands before the first of the next one.
        is_last = np.append(owners[1:] != owners[:-1], True)
        last = positions[is_last & has_several[owners]]
        held_out = np.full(self.num_users, -1, dtype=np.int64)
        held_out[has_several] = self.items[last]
        remains = np.ones(len(self.items), dtype=bool)
        remains[last] = False
        return self.select(remains), held_out

    def select(self, keep: Bools) -> "Interactions":
        """The interactions for which `keep` ``(P,)`` is true."""
        liked = self.liked
        if liked is not None:
            liked = liked[keep]
        return dataclasses.replace(self, users=self.users[keep], items=self.items[keep], liked=liked)


def unique_interactions(
    users: Ints, items: Ints, times: Ints, *, num_users: int, num_items: int, liked: Bools | None = None
) -> Interactions:
    """Sorts interactions by user and time, and keeps the first of every repeated pair."""
    order = np.lexsort((items, times, users))
    pairs = users[order] * num_items + items[order]
    _, first_of_pair = np.unique(pairs, return_index=True)
    chosen = order[np.sort(first_of_pair)]
    if liked is not None:
        liked = liked[chosen]
    return Interactions(users[chosen], items[chosen], num_users, num_items, liked)


def sample_unseen(positives: Ints, size: int, num_items: int, generator: torch.Generator) -> Ints:
    """Items that a user never interacted with, drawn without replacement; all if there are no more than `size`."""
    unseen = np.ones(num_items, dtype=bool)
    unseen[positives] = False
    candidates = np.flatnonzero(unseen)
    if size >= len(candidates):
        return candidates
    return np.asarray(candidates[torch.randperm(len(candidates), generator=generator)[:size].numpy()])


def labelled_items(
    positives: Ints, *, per_positive: float, num_items: int, seed: int, key: tuple[int, ...]
) -> tuple[Ints, npt.NDArray[np.float32]]:
    """One client's positives and sampled negatives, sorted by item so that their order reveals no label.

    Returns:
        Items ``(N,)`` ascending and labels ``(N,)``.
    """
    size = int(negatives_for(len(positives), per_positive))
    negatives = sample_unseen(positives, size, num_items, generator_for(seed, "negatives", *key))
    return in_item_order(positives, negatives)


def negatives_for(positives: int | Ints, per_positive: float) -> Ints:
    """Number of negatives for a number of positives, rounded up, with a tolerance so that 11/9 of 9 are 11."""
    return np.ceil(per_positive * np.asarray(positives) - 1e-9).astype(np.int64)


def in_item_order(positives: Ints, negatives: Ints) -> tuple[Ints, npt.NDArray[np.float32]]:
    """Items ``(N,)`` ascending and their labels ``(N,)``."""
    items = np.concatenate([positives, negatives])
    labels = np.concatenate([np.ones(len(positives), np.float32), np.zeros(len(negatives), np.float32)])
    order = np.argsort(items)
    return items[order], labels[order]


def refuse_degenerate(interactions: Interactions, *, drop: bool, source: str) -> Interactions:
    """Handles users who like no item, and those who like all items and so have no negative.

    Raises:
        InputError: there is such a user and `drop` is false.
    """
    users = interactions.users
    if interactions.liked is not None:
        users = users[interactions.liked]
    counts = np.bincount(users, minlength=interactions.num_users)
    # Without a positive there is nothing to train; with all items liked, no negative is left to draw.
    degenerate = np.flatnonzero((counts == 0) | (counts >= interactions.num_items))
    if not len(degenerate):
        return interactions
    if not drop:
        first = degenerate[0]
        raise InputError(
            expected="users with at least one interaction and at least one item left",
            found=f"user {first} of {source} with {counts[first]} of {interactions.num_items} items"
            f" ({len(degenerate)} such users)",
            way_out="Set degenerate_users to drop to leave them out.",
        )
    return keep_users(interactions, np.setdiff1d(np.arange(interactions.num_users), degenerate))


def keep_users(interactions: Interactions, kept_users: Ints) -> Interactions:
    """The interactions of some users, given in ascending order and numbered again from 0."""
    new_number = np.full(interactions.num_users, -1, dtype=np.int64)
    new_number[kept_users] = np.arange(len(kept_users))
    remaining = interactions.select(new_number[interactions.users] >= 0)
    # Ranks are those among all users of the source, whoever was left out before.
    ranks = kept_users
    if interactions.ranks is not None:
        ranks = interactions.ranks[kept_users]
    return dataclasses.replace(remaining, users=new_number[remaining.users], num_users=len(kept_users), ranks=ranks)
