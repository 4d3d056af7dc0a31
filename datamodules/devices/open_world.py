"""Open world: users whose data the adversary partly knows (seen), others (unseen), and hold-out users."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from protocol.errors import require
from protocol.seeding import PERSISTENT, generator_for

SEEN, UNSEEN, HOLDOUT = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class OpenWorld:
    """Fractions of users in the open world (deanonymization, section 6.1.2).

    Attributes:
        seen_fraction: fraction of the users outside the hold-out of whom the adversary has data. It has none of the
            others, whose known half is on no device.
        holdout_fraction: fraction of all users whose known data train the adversary's class of unseen users, and who
            have no anonymous device (a third in the paper).
    """

    seen_fraction: float
    holdout_fraction: float = 1 / 3

    def __post_init__(self) -> None:
        require(
            0 <= self.seen_fraction <= 1 and 0 <= self.holdout_fraction < 1,
            "seen_fraction from 0 to 1 and holdout_fraction from 0 to below 1",
            f"{self.seen_fraction} and {self.holdout_fraction}",
            "The paper's holdout_fraction is a third.",
        )


def draw_roles(users: int, world: OpenWorld, *, seed: int) -> Tensor:
    """``(U,)`` int64 role of every user.

    For a larger `seen_fraction` the hold-out is the same, and every seen user stays seen.
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
    """Users' anonymous and known examples without anonymous ones of hold-out users and known ones of unseen users."""
    nothing = torch.empty(0, dtype=torch.int64)
    return (
        tuple(nothing if role == HOLDOUT else part for part, role in zip(anonymous, roles.tolist(), strict=True)),
        tuple(nothing if role == UNSEEN else part for part, role in zip(known, roles.tolist(), strict=True)),
    )
