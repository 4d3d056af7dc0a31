"""The open world: users of whom the adversary knows something, of whom it knows nothing, and its own hold-out."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from protocol.errors import InputError
from protocol.seeding import PERSISTENT, generator_for

SEEN, UNSEEN, HOLDOUT = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class OpenWorld:
    """Section 6.1.2.

    Attributes:
        holdout_fraction: of all users, whose known data train the adversary's class of unseen users and who have no
            anonymous device (a third in the paper).
        seen_fraction: of the other users, of whom the adversary knows something. Of the rest it knows nothing, and
            their known half is with nobody.
    """

    seen_fraction: float
    holdout_fraction: float = 1 / 3

    def __post_init__(self) -> None:
        """Refuses what is no fraction.

        Raises:
            InputError: one is not in [0, 1], or everybody is held out.
        """
        if not (0 <= self.seen_fraction <= 1 and 0 <= self.holdout_fraction < 1):
            raise InputError(
                expected="seen_fraction from 0 to 1 and holdout_fraction from 0 to below 1",
                found=f"{self.seen_fraction} and {self.holdout_fraction}",
                way_out="The paper's holdout_fraction is a third.",
            )


def draw_roles(users: int, world: OpenWorld, *, seed: int) -> Tensor:
    """``(U,)`` int64 role of every user; the hold-out is the same, and who is seen stays seen, as more are seen.

    Args:
        users: their number U.
        world: the fractions.
        seed: of the draw.
    """
    order = torch.randperm(users, generator=generator_for(seed, "open world", PERSISTENT))
    holdout = round(world.holdout_fraction * users)
    seen = round(world.seen_fraction * (users - holdout))
    roles = torch.full((users,), UNSEEN)
    roles[order[:holdout]] = HOLDOUT
    roles[order[holdout : holdout + seen]] = SEEN
    return roles


def with_roles(
    anonymous: Sequence[Tensor], known: Sequence[Tensor], roles: Tensor
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """What is left on devices: nothing anonymous of the hold-out, and nothing known of unseen users.

    Args:
        anonymous: for each user the examples of its anonymous device.
        known: for each user those that the adversary would know.
        roles: ``(U,)``.
    """
    nothing = torch.empty(0, dtype=torch.int64)
    return (
        tuple(nothing if role == HOLDOUT else part for part, role in zip(anonymous, roles.tolist(), strict=True)),
        tuple(nothing if role == UNSEEN else part for part, role in zip(known, roles.tolist(), strict=True)),
    )
