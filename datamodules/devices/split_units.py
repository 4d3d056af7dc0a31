"""Units that stay whole when a user's examples are split: single examples, posts of one day, or photosets."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedleak.datamodules.devices.user_examples import OwnedExamples


def units_of(examples: OwnedExamples, prior: str) -> Tensor:
    """``(N,)`` int64 number of every example's unit.

    Args:
        examples: examples of all users.
        prior: ``chrono`` keeps the examples of one post and day together, ``photoset`` those of one group; under other
            priors, and without a group, an example is a unit of its own.
    """
    if prior not in ("chrono", "photoset"):
        return torch.arange(len(examples))
    # An example without a group gets a number above all groups.
    ungrouped = examples.groups.max().clamp(min=-1) + 1 + torch.arange(len(examples))
    groups = torch.where(examples.groups < 0, ungrouped, examples.groups)
    days = torch.zeros_like(groups)
    if prior == "chrono":
        days = examples.days
    _, units = np.unique(torch.stack([groups, days], 1).numpy(), axis=0, return_inverse=True)
    return torch.from_numpy(units.reshape(-1))


@dataclass(frozen=True)
class Ordered:
    """Examples sorted by user and unit.

    Attributes:
        numbers: ``(n,)`` positions of the examples before sorting.
        owners: ``(n,)`` their users, ascending.
        unit_begins: ``(n,)`` True where a user's next unit begins.
    """

    numbers: Tensor
    owners: Tensor
    unit_begins: Tensor

    def units_per_user(self, users: int) -> Tensor:
        """``(U,)`` number of units of every user."""
        return self.owners[self.unit_begins].bincount(minlength=users)


def in_order(owners: Tensor, units: Tensor, keys: Tensor) -> Ordered:
    """Sorts every user's units.

    Args:
        owners: ``(n,)`` users of examples.
        units: ``(n,)`` their units; no unit is of two users.
        keys: ``(n,)`` sort keys; that of its first example is the key of a unit. Ties keep the order of the source.
    """
    _, first, unit = np.unique(units.numpy(), return_index=True, return_inverse=True)
    key_of_unit = keys.numpy()[first]
    # By user, then by the unit's key, then by the unit's place in the source (the last key of lexsort is the first).
    order = np.lexsort((first[unit], key_of_unit[unit], owners.numpy()))
    sorted_units = unit[order]
    begins = np.diff(sorted_units, prepend=-1) != 0
    numbers = torch.from_numpy(order)
    return Ordered(numbers, owners[numbers], torch.from_numpy(begins))


def cut_points(order: Ordered, fraction: float | Tensor, *, left_after: int, left_before: int = 0) -> Tensor:
    """``(n,)`` True for the examples of every user's first units, as close to a fraction of its examples as possible.

    Args:
        order: the examples.
        fraction: fraction of each user's examples, one for all or ``(U,)``.
        left_after: least number of units that are not taken; a user with no more than these gives none.
        left_before: least number of units that are taken.
    """
    is_taken = np.zeros(len(order.owners), dtype=bool)
    users, begins = np.unique(order.owners.numpy(), return_index=True)
    if not len(users):
        return torch.from_numpy(is_taken)
    # One fraction for all users, or that of each of those who have examples.
    fractions = np.broadcast_to(np.asarray(fraction), (int(users[-1]) + 1,))[users]
    ends = [*begins[1:], len(is_taken)]
    for begin, end, user_fraction in zip(begins, ends, fractions, strict=True):
        starts = np.flatnonzero(order.unit_begins.numpy()[begin:end])
        wanted = user_fraction * (end - begin)
        is_taken[begin : begin + _nearest(starts, wanted, left_before, len(starts) - left_after)] = True
    return torch.from_numpy(is_taken)


def _nearest(starts: npt.NDArray[np.int64], wanted: float, least: int, most: int) -> int:
    """The begin of a unit closest to a number of examples that leaves enough units on both sides."""
    # To cut before unit k takes k units, so k lies between the least and the most units that may be taken.
    if most < least:
        return 0
    allowed = starts[least : most + 1]
    if not len(allowed):
        return 0
    return int(allowed[np.argmin(np.abs(allowed - wanted))])
