"""Assignment of a user's examples to the anonymous device and to the adversary, never one example to both.

The deanonymization paper has four priors (section 4.2); half of a user's data is on each side, and a fifth is held out
for the test (section 5). Equal halves give both devices of a user the same number of examples, which every message
reports, so by default each user's share is drawn. Section 4.5 has the worlds, and section 6.1.1 the control with
exchanged examples.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fedleak.core.errors import InputError, require
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.datamodules.devices.profiles import Profile, with_profiles
from fedleak.datamodules.devices.split_units import cut_points, in_order, units_of
from fedleak.datamodules.devices.user_examples import UNDATED, OwnedExamples

_UNIT = {"random": "examples", "profile": "examples", "chrono": "posts", "photoset": "photosets"}
SEEN = 0
UNSEEN = 1
HOLDOUT = 2
"""Users whose data the adversary partly knows in the open world, others, and those who only represent others."""
LEAST = 2
"""Least number of units of a user: one for each side."""


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


@dataclass(frozen=True, kw_only=True)
class Devices:
    """Options of the assignment.

    Attributes:
        prior: ``random``: random parts; ``chrono``: the adversary has the earlier part, in whole posts; ``photoset``:
            random whole photosets, or whole posts of text, whose sentences ``random`` separates; ``profile``: the
            adversary has background examples of some kinds, of none of the users, whose parts are those of ``random``.
        share: each user's share on the anonymous device, of its examples outside the test, is drawn uniformly between
            these two; the paper's is (0.5, 0.5).
        test_fraction: fraction of every user's examples on neither device, for the evaluation of the trained model
            (section 5: 20 %), in the units of the prior.
        adversary: whether the adversary has a device of each user; if not, all of a user's examples outside the test
            are on the anonymous one.
        world: the open world; None for the closed world, in which the adversary has data of all users.
        iid: control: the examples of all devices are dealt at random, the same number to each.
        dealt_to: number of devices among which they are dealt; None for all that have any. The others are no clients.
        profiles: kinds of examples for the prior ``profile``.
        too_few: refuse users with fewer than two examples, posts or photosets, or leave them out.
        undated: under ``chrono``, refuse undated examples, or leave them out (before `too_few` applies).
    """

    prior: Literal["random", "chrono", "photoset", "profile"] = "random"
    share: tuple[float, float] = (0.3, 0.7)
    test_fraction: float = 0.2
    adversary: bool = True
    world: OpenWorld | None = None
    iid: bool = False
    dealt_to: int | None = None
    profiles: Sequence[Profile] = ()
    too_few: Literal["error", "drop"] = "error"
    undated: Literal["error", "drop"] = "error"

    def __post_init__(self) -> None:
        expected = "test_fraction from 0 to below 1"
        require(0 <= self.test_fraction < 1, expected, self.test_fraction, "The paper's is 0.2.")
        low, high = self.share
        require(0 < low <= high < 1, "share: two numbers in (0, 1)", self.share, "The paper's are 0.5 and 0.5.")
        require(
            (self.prior == "profile") == bool(self.profiles),
            "profiles with the prior profile, and only with it",
            f"{len(self.profiles)} profiles with the prior {self.prior}",
            "Give devices.profiles, or choose another prior.",
        )
        require(
            self.prior != "profile" or (self.world is None and not self.iid),
            "the closed world and no control with the prior profile",
            "another world or iid: true",
            "Its known devices belong to profiles, not to users: leave both out.",
        )
        require(
            self.adversary or (self.world is None and self.prior != "profile"),
            "no world and no profiles without devices of the adversary",
            "adversary: false with one of them",
            "Leave them out.",
        )
        require(
            self.dealt_to is None or (self.iid and self.dealt_to >= 1),
            "dealt_to of at least 1 with iid: true",
            f"{self.dealt_to} with iid: {self.iid}",
            "Set devices.iid: true, or leave dealt_to out.",
        )


@dataclass(frozen=True, kw_only=True)
class DeviceSplit:
    """Examples on every device; no example is in two of all these tensors.

    Attributes:
        anonymous: per user (U of them) the ascending numbers of the examples on the anonymous device.
        known: per user those that the adversary knows; under the prior ``profile`` the background examples of each
            profile, then others for contrast, numbered from the number of all users' examples.
        test: per user those on no device.
        roles: ``(U,)`` int64 `SEEN`, `UNSEEN` (no known examples) or `HOLDOUT` (no anonymous examples).
        profiles: names of the profiles; empty under other priors.
    """

    anonymous: tuple[Tensor, ...]
    known: tuple[Tensor, ...]
    test: tuple[Tensor, ...]
    roles: Tensor
    profiles: tuple[str, ...] = ()


def split_devices(examples: OwnedExamples, devices: Devices, *, seed: int, member: Tensor | None = None) -> DeviceSplit:
    """Assigns the examples of all users.

    Args:
        examples: examples of all users.
        devices: options.
        seed: seed of the draws.
        member: ``(P, M)`` True for the background examples of each profile; None without profiles.

    Raises:
        InputError: a user has too little to be split, or under ``chrono`` an undated example.
    """
    if devices.prior == "chrono":
        _check_dates(examples)
    test, anonymous, known = _thirds(examples, devices, seed)
    if not devices.adversary:
        anonymous = anonymous | known
        known = torch.zeros_like(known)
    split = DeviceSplit(
        anonymous=_by_user(anonymous, examples),
        known=_by_user(known, examples),
        test=_by_user(test, examples),
        roles=torch.full((examples.num_users,), SEEN),
    )
    if devices.profiles:
        # The known devices hold background examples, which are numbered behind those of the users.
        assert member is not None
        names = tuple(profile.name for profile in devices.profiles)
        background_by_profile = with_profiles(member, names, seed=seed)
        known_devices = tuple(len(examples) + numbers for numbers in background_by_profile)
        return replace(split, known=known_devices, profiles=names)
    if devices.world is not None:
        # Of hold-out users the adversary has data, but no anonymous device trains; of unseen users it has none.
        roles = draw_roles(examples.num_users, devices.world, seed=seed)
        split = replace(split, anonymous=_without(HOLDOUT, split.anonymous, roles), roles=roles)
        split = replace(split, known=_without(UNSEEN, split.known, roles))
    if devices.iid:
        return _shuffled(split, devices.dealt_to, seed)
    return split


def draw_roles(users: int, world: OpenWorld, *, seed: int) -> Tensor:
    """``(U,)`` int64 role of every user.

    For a larger `seen_fraction` the hold-out is the same, and every seen user stays seen.
    """
    order = torch.randperm(users, generator=generator_for(seed, "open world", PERSISTENT))
    holdout_users = round(world.holdout_fraction * users)
    # The seen fraction is one of the users who are not held out.
    seen_users = round(world.seen_fraction * (users - holdout_users))
    roles = torch.full((users,), UNSEEN)
    roles[order[:holdout_users]] = HOLDOUT
    roles[order[holdout_users : holdout_users + seen_users]] = SEEN
    return roles


def _without(role: int, parts: Sequence[Tensor], roles: Tensor) -> tuple[Tensor, ...]:
    """Users' examples without those of the users in a role."""
    remaining = []
    for part, user_role in zip(parts, roles.tolist(), strict=True):
        remaining.append(part[:0] if user_role == role else part)
    return tuple(remaining)


def without_poor_users(examples: OwnedExamples, devices: Devices) -> OwnedExamples:
    """The examples of users with at least two units of the prior."""
    units = units_of(examples, devices.prior)
    counts = in_order(examples.owners, units, units).units_per_user(examples.num_users)
    has_enough = counts >= LEAST
    if has_enough.all():
        return examples
    require(
        has_enough.any(),
        f"a user with at least {LEAST} {_UNIT[devices.prior]} for the prior {devices.prior}",
        f"none among {examples.num_users}",
        "Take more data, or choose another prior.",
    )
    dropped = replace(examples.dropped, users=examples.dropped.users + int((~has_enough).sum()))
    remaining = examples.select(has_enough[examples.owners].nonzero().flatten())
    return replace(remaining, dropped=dropped)


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
    """``(N,)`` masks of the test examples, the anonymous ones and the known ones."""
    units = units_of(examples, devices.prior)
    generator = generator_for(seed, "device split", PERSISTENT)
    # The test examples are drawn first; two units of each user are left for the two devices.
    is_test = torch.zeros(len(examples), dtype=torch.bool)
    if devices.test_fraction:
        shuffled = in_order(examples.owners, units, torch.rand(len(examples), generator=generator))
        is_test[shuffled.numbers[cut_points(shuffled, devices.test_fraction, left_after=LEAST)]] = True
    rest = (~is_test).nonzero().flatten()
    # The others are cut in two: by time under the prior chrono, else in a random order.
    is_chrono = devices.prior == "chrono"
    keys = examples.days.double() if is_chrono else torch.rand(len(examples), generator=generator)
    order = in_order(examples.owners[rest], units[rest], keys[rest])
    _check_units(examples, order.units_per_user(examples.num_users), devices)
    shares = _shares(examples.num_users, devices.share, seed)
    cut = cut_points(order, 1 - shares if is_chrono else shares, left_after=1, left_before=1)
    is_first = torch.zeros(len(examples), dtype=torch.bool)
    is_first[rest[order.numbers[cut]]] = True
    is_second = ~is_first & ~is_test
    # By time, the adversary knows the older examples, and the anonymous device has the newer ones.
    if is_chrono:
        return is_test, is_second, is_first
    return is_test, is_first, is_second


def _shares(users: int, share: tuple[float, float], seed: int) -> Tensor:
    """``(U,)`` share of each user's examples on the anonymous device."""
    low, high = share
    draws = torch.rand(users, generator=generator_for(seed, "shares of devices", PERSISTENT), dtype=torch.float64)
    return low + (high - low) * draws


def _check_units(examples: OwnedExamples, units: Tensor, devices: Devices) -> None:
    short = (units < LEAST).nonzero().flatten()
    if len(short):
        number = int(short[0])
        raise InputError(
            expected=f"at least {LEAST} {_UNIT[devices.prior]} of every user for the prior {devices.prior}",
            found=f"{int(units[number])} of user {int(examples.owner_ids[number])} with "
            f"{int(examples.counts()[number])} examples ({len(short)} such users)",
            way_out="Set devices.too_few: drop to leave them out, or choose another prior.",
        )


def _by_user(chosen: Tensor, examples: OwnedExamples) -> tuple[Tensor, ...]:
    """Ascending numbers of every user's examples in a mask."""
    numbers = chosen.nonzero().flatten()
    owners = examples.owners[numbers]
    sizes = owners.bincount(minlength=examples.num_users).tolist()
    return torch.split(numbers[owners.argsort(stable=True)], sizes)


def _shuffled(split: DeviceSplit, most: int | None, seed: int) -> DeviceSplit:
    """All devices' examples dealt at random to at most so many; numbers of examples differ by one at most."""
    parts = [*split.anonymous, *split.known]
    pool = torch.cat(parts)
    order = torch.randperm(len(pool), generator=generator_for(seed, "iid control", PERSISTENT))
    # A device without examples stays without: it is no client.
    devices_with_any = sum(len(part) > 0 for part in parts)
    devices = devices_with_any
    if most is not None:
        devices = min(devices, most)
    hands = list(torch.tensor_split(pool[order], max(devices, 1)))
    dealt = []
    for part in parts:
        if len(part) and hands:
            dealt.append(hands.pop(0).sort().values)
        else:
            dealt.append(part[:0])
    users = len(split.anonymous)
    return replace(split, anonymous=tuple(dealt[:users]), known=tuple(dealt[users:]))
