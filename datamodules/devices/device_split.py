"""Which of a user's examples are on the anonymous device, and which the adversary knows: never one in both.

Section 4.2 of the paper has four priors, section 5 puts half of a user's data on each side and holds a fifth of them
out, section 4.5 has the worlds, and section 6.1.1 the control in which a device holds no one's data.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from datamodules.devices.open_world import SEEN, OpenWorld, draw_roles, with_roles
from datamodules.devices.profiles import Profile, with_profiles
from datamodules.devices.split_units import cut_points, in_order, units_of
from datamodules.devices.user_examples import UNDATED, OwnedExamples
from protocol.errors import InputError
from protocol.seeding import PERSISTENT, generator_for

Prior = Literal["random", "chrono", "photoset", "profile"]
_UNIT = {"random": "examples", "profile": "examples", "chrono": "posts", "photoset": "photosets"}
LEAST = 2
"""Units of a user that can be dealt out: one for each side."""


@dataclass(frozen=True, kw_only=True)
class Devices:
    """How users' examples are put on devices.

    Attributes:
        prior: ``random``: halves drawn at random; ``chrono``: the adversary has the earlier half, whole posts;
            ``photoset``: whole photosets, or of text whole posts, drawn at random, where ``random`` tears the sentences
            of a post apart; ``profile``: the adversary has examples of a kind, from whomever they are, and the
            anonymous halves are those of ``random``.
        test_fraction: of every user's examples, on neither device, for the evaluation of the trained model (section
            5: 20 %); as the prior deals, single examples or whole posts and photosets.
        world: None for the closed world, where the adversary has data of all users.
        iid: the control: examples change places among all devices at random, whose sizes stay.
        profiles: kinds of examples, for the prior ``profile``.
        too_few: refuse users with fewer than two examples, posts or photosets to deal out, or leave them out.
        undated: under ``chrono``: refuse undated examples, or leave them out (before it is asked who has enough).
    """

    prior: Prior = "random"
    test_fraction: float = 0.2
    world: OpenWorld | None = None
    iid: bool = False
    profiles: Sequence[Profile] = ()
    too_few: Literal["error", "drop"] = "error"
    undated: Literal["error", "drop"] = "error"

    def __post_init__(self) -> None:
        """Refuses what contradicts itself.

        Raises:
            InputError: a fraction that is none, or profiles without their prior, or the reverse.
        """
        if not 0 <= self.test_fraction < 1:
            raise InputError(
                expected="test_fraction from 0 to below 1", found=str(self.test_fraction), way_out="The paper's is 0.2."
            )
        if (self.prior == "profile") != bool(self.profiles):
            raise InputError(
                expected="profiles with the prior profile, and only with it",
                found=f"{len(self.profiles)} profiles with the prior {self.prior}",
                way_out="Give devices.profiles, or choose another prior.",
            )
        if self.prior == "profile" and (self.world is not None or self.iid):
            raise InputError(
                expected="the closed world and no control with the prior profile",
                found="another world or iid: true",
                way_out="Its known devices belong to profiles, not to users: leave both out.",
            )


@dataclass(frozen=True, kw_only=True)
class DeviceSplit:
    """What every device holds; no example is in two of all these tensors.

    Attributes:
        anonymous: for each of U users the ascending numbers of the examples on the device that trains without a name.
        known: for each user those that the adversary knows; under the prior ``profile`` for each profile.
        test: for each user those that no device has.
        roles: ``(U,)`` int64 `SEEN`, `UNSEEN` (nothing known) or `HOLDOUT` (nothing anonymous).
        profiles: their names; empty under other priors.
    """

    anonymous: tuple[Tensor, ...]
    known: tuple[Tensor, ...]
    test: tuple[Tensor, ...]
    roles: Tensor
    profiles: tuple[str, ...] = ()


def split_devices(examples: OwnedExamples, devices: Devices, *, seed: int, member: Tensor | None = None) -> DeviceSplit:
    """Deals every user's examples out.

    Args:
        examples: of all users.
        devices: how.
        seed: of the draws.
        member: ``(P, N)`` bool, which examples are of which profile; None without profiles.

    Raises:
        InputError: a user has too little to be split, or under ``chrono`` something undated.
    """
    if devices.prior == "chrono":
        _check_dates(examples)
    test, anonymous, known = _thirds(examples, devices, seed)
    split = DeviceSplit(
        anonymous=_by_user(anonymous, examples),
        known=_by_user(known, examples),
        test=_by_user(test, examples),
        roles=torch.full((examples.num_users,), SEEN),
    )
    if devices.profiles:
        assert member is not None
        names = tuple(profile.name for profile in devices.profiles)
        return replace(split, known=with_profiles(split.known, member, names, seed=seed), profiles=names)
    if devices.world is not None:
        roles = draw_roles(examples.num_users, devices.world, seed=seed)
        anonymous_parts, known_parts = with_roles(split.anonymous, split.known, roles)
        split = replace(split, anonymous=anonymous_parts, known=known_parts, roles=roles)
    return _shuffled(split, seed) if devices.iid else split


def without_poor_users(examples: OwnedExamples, devices: Devices) -> OwnedExamples:
    """The examples of users who have two units of what the prior deals out."""
    units = units_of(examples, devices.prior)
    counts = in_order(examples.owners, units, units).units_per_user(examples.num_users)
    rich = counts >= LEAST
    if rich.all():
        return examples
    dropped = replace(examples.dropped, users=examples.dropped.users + int((~rich).sum()))
    kept = rich[examples.owners].nonzero().flatten()
    if not len(kept):
        raise InputError(
            expected=f"a user with at least {LEAST} {_UNIT[devices.prior]} for the prior {devices.prior}",
            found=f"none among {examples.num_users}",
            way_out="Take more data, or choose another prior.",
        )
    return replace(examples.select(kept), dropped=dropped)


def _check_dates(examples: OwnedExamples) -> None:
    undated = examples.days == UNDATED
    if undated.any():
        user = int(examples.owners[undated][0])
        raise InputError(
            expected="a date of every example under the prior chrono",
            found=f"{int(undated.sum())} of {len(examples)} undated, the first of user {int(examples.owner_ids[user])}",
            way_out="Set devices.undated: drop to leave them out, or choose another prior.",
        )


def _thirds(examples: OwnedExamples, devices: Devices, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """``(N,)`` each: what is for the test, on the anonymous device and known."""
    units = units_of(examples, devices.prior)
    generator = generator_for(seed, "device split", PERSISTENT)
    test = torch.zeros(len(examples), dtype=torch.bool)
    if devices.test_fraction:
        shuffled = in_order(examples.owners, units, torch.rand(len(examples), generator=generator))
        test[shuffled.numbers[cut_points(shuffled, devices.test_fraction, left_after=LEAST)]] = True
    rest = (~test).nonzero().flatten()
    chrono = devices.prior == "chrono"
    keys = examples.days.double() if chrono else torch.rand(len(examples), generator=generator)
    order = in_order(examples.owners[rest], units[rest], keys[rest])
    _enough(examples, order.units_per_user(examples.num_users), devices)
    first = torch.zeros(len(examples), dtype=torch.bool)
    first[rest[order.numbers[cut_points(order, 0.5, left_after=1, left_before=1)]]] = True
    second = ~first & ~test
    return (test, second, first) if chrono else (test, first, second)


def _enough(examples: OwnedExamples, units: Tensor, devices: Devices) -> None:
    short = (units < LEAST).nonzero().flatten()
    if len(short):
        number = int(short[0])
        there = int(examples.counts()[number])
        raise InputError(
            expected=f"at least {LEAST} {_UNIT[devices.prior]} of every user for the prior {devices.prior}",
            found=f"{int(units[number])} of user {int(examples.owner_ids[number])} with {there} examples "
            f"({len(short)} such users)",
            way_out="Set devices.too_few: drop to leave them out, or choose another prior.",
        )


def _by_user(chosen: Tensor, examples: OwnedExamples) -> tuple[Tensor, ...]:
    """For every user the ascending numbers of its examples in a mask."""
    numbers = chosen.nonzero().flatten()
    owners = examples.owners[numbers]
    sizes = owners.bincount(minlength=examples.num_users).tolist()
    return torch.split(numbers[owners.argsort(stable=True)], sizes)


def _shuffled(split: DeviceSplit, seed: int) -> DeviceSplit:
    """The examples of all devices dealt out anew, each device keeping its size."""
    parts = [*split.anonymous, *split.known]
    pool = torch.cat(parts)
    order = torch.randperm(len(pool), generator=generator_for(seed, "iid control", PERSISTENT))
    dealt = [part.sort().values for part in torch.split(pool[order], [len(part) for part in parts])]
    users = len(split.anonymous)
    return replace(split, anonymous=tuple(dealt[:users]), known=tuple(dealt[users:]))
