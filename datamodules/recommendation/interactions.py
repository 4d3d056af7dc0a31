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
        position = np.arange(len(self.items)) if self.liked is None else np.flatnonzero(self.liked)
        owner = self.users[position]
        several = np.bincount(owner, minlength=self.num_users) > 1
        is_last = np.append(owner[1:] != owner[:-1], True)
        last = position[is_last & several[owner]]
        held = np.full(self.num_users, -1, dtype=np.int64)
        held[several] = self.items[last]
        keep = np.ones(len(self.items), dtype=bool)
        keep[last] = False
        return self.select(keep), held

    def select(self, keep: Bools) -> "Interactions":
        """The interactions for which `keep` ``(P,)`` is true."""
        liked = None if self.liked is None else self.liked[keep]
        return dataclasses.replace(self, users=self.users[keep], items=self.items[keep], liked=liked)


def unique_interactions(
    users: Ints, items: Ints, times: Ints, *, num_users: int, num_items: int, liked: Bools | None = None
) -> Interactions:
    """Sorts interactions by user and time, and keeps the first of every repeated pair."""
    order = np.lexsort((items, times, users))
    pairs = users[order] * num_items + items[order]
    chosen = order[np.sort(np.unique(pairs, return_index=True)[1])]
    kept = None if liked is None else liked[chosen]
    return Interactions(users[chosen], items[chosen], num_users, num_items, kept)


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
    users = interactions.users if interactions.liked is None else interactions.users[interactions.liked]
    counts = np.bincount(users, minlength=interactions.num_users)
    bad = np.flatnonzero((counts == 0) | (counts >= interactions.num_items))
    if not len(bad):
        return interactions
    if not drop:
        raise InputError(
            expected="users with at least one interaction and at least one item left",
            found=f"user {bad[0]} of {source} with {counts[bad[0]]} of {interactions.num_items} items"
            f" ({len(bad)} such users)",
            way_out="Set degenerate_users to drop to leave them out.",
        )
    return keep_users(interactions, np.setdiff1d(np.arange(interactions.num_users), bad))


def keep_users(interactions: Interactions, kept: Ints) -> Interactions:
    """The interactions of some users, given in ascending order and numbered again from 0."""
    number = np.full(interactions.num_users, -1, dtype=np.int64)
    number[kept] = np.arange(len(kept))
    rest = interactions.select(number[interactions.users] >= 0)
    ranks = kept if interactions.ranks is None else interactions.ranks[kept]
    return dataclasses.replace(rest, users=number[rest.users], num_users=len(kept), ranks=ranks)
