"""No example is on two devices, under any prior, in any world; and what cannot be split is refused."""

import datetime
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedleak.core.errors import InputError
from fedleak.core.seeding import generator_for
from fedleak.datamodules.devices.device_split import (
    HOLDOUT,
    SEEN,
    UNSEEN,
    Devices,
    DeviceSplit,
    OpenWorld,
    split_devices,
    without_poor_users,
)
from fedleak.datamodules.devices.profiles import Profile, profile_fit
from fedleak.datamodules.devices.split_units import in_order
from fedleak.datamodules.devices.user_examples import UNDATED, OwnedExamples

DAY = datetime.date(2004, 8, 2).toordinal()


def examples(*, users: int = 9, groups: int = 6, seed: int = 0) -> OwnedExamples:
    """Users in turn; every group has one day, and its examples stand apart in the source."""
    generator = generator_for(seed, "test-examples")
    sizes = torch.randint(1, 7, (users * groups,), generator=generator)
    group = torch.arange(users * groups).repeat_interleave(sizes)
    group = group[torch.randperm(len(group), generator=generator)]
    days = DAY + torch.randint(0, 40, (users * groups,), generator=generator)
    return OwnedExamples(
        features=torch.arange(len(group))[:, None],
        labels=torch.zeros(len(group)),
        owners=group % users,
        days=days[group],
        groups=group,
        owner_ids=torch.arange(users) * 3,
    )


def split(source: OwnedExamples, *, member: Tensor | None = None, seed: int = 0, **devices: Any) -> DeviceSplit:
    return split_devices(source, Devices(**devices), seed=seed, member=member)


def parts(result: DeviceSplit) -> list[Tensor]:
    return [*result.anonymous, *result.known, *result.test]


PROFILES = (Profile(name="even", terms=["x"]), Profile(name="third", terms=["y"]))
SETTINGS: dict[str, dict[str, Any]] = {
    "random": {},
    "chrono": {"prior": "chrono"},
    "photoset": {"prior": "photoset"},
    "profile": {"prior": "profile", "profiles": PROFILES},
    "no test": {"test_fraction": 0.0},
    "open world": {"prior": "chrono", "world": OpenWorld(seen_fraction=0.5)},
    "iid": {"prior": "chrono", "iid": True},
    "iid, open world": {"world": OpenWorld(seen_fraction=0.5), "iid": True},
}


def members(source: OwnedExamples) -> Tensor:
    numbers = torch.arange(len(source))
    return torch.stack([numbers % 2 == 0, numbers % 3 == 0])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("setting", SETTINGS)
def test_no_example_is_on_two_devices(setting: str, seed: int) -> None:
    source = examples(seed=seed)
    member = members(source) if setting == "profile" else None
    together = torch.cat(parts(split(source, member=member, seed=seed, **SETTINGS[setting])))
    assert len(set(together.tolist())) == len(together)


@pytest.mark.parametrize("setting", ["random", "chrono", "photoset", "no test"])
def test_every_example_is_somewhere_with_its_owner_half_on_each_side(setting: str) -> None:
    source = examples()
    result = split(source, **SETTINGS[setting], share=(0.5, 0.5))
    assert torch.cat(parts(result)).sort().values.tolist() == list(range(len(source)))
    for side in (result.anonymous, result.known, result.test):
        for user, part in enumerate(side):
            assert (source.owners[part] == user).all()
            assert (part.diff() > 0).all()
    largest = 1 if setting in ("random", "no test") else 6
    for anonymous, known, test in zip(result.anonymous, result.known, result.test, strict=True):
        assert abs(len(anonymous) - len(known)) <= largest
        total = len(anonymous) + len(known) + len(test)
        assert abs(len(test) - (0.0 if setting == "no test" else 0.2) * total) <= largest


@pytest.mark.parametrize("prior", ["random", "chrono"])
def test_shares_are_drawn_for_each_user_between_the_two_given(prior: str) -> None:
    source = examples(users=30, groups=60)
    result = split(source, prior=prior, test_fraction=0.0)
    shares = torch.tensor([len(a) / (len(a) + len(k)) for a, k in zip(result.anonymous, result.known, strict=True)])
    assert 0.28 < shares.min() < 0.4
    assert 0.6 < shares.max() < 0.72
    assert shares.mean() == pytest.approx(0.5, abs=0.05)
    with pytest.raises(InputError, match="share"):
        Devices(share=(0.0, 0.5))


@pytest.mark.parametrize("prior", ["chrono", "photoset"])
def test_no_post_and_no_photoset_is_torn_apart(prior: str) -> None:
    source = examples()
    owned = [set(source.groups[part].tolist()) for part in parts(split(source, prior=prior))]
    assert len(set.union(*owned)) == sum(map(len, owned))
    torn = [set(source.groups[part].tolist()) for part in parts(split(source))]
    assert len(set.union(*torn)) < sum(map(len, torn))


def test_what_is_known_is_older() -> None:
    source = examples()
    result = split(source, prior="chrono")
    for anonymous, known in zip(result.anonymous, result.known, strict=True):
        assert source.days[known].max() <= source.days[anonymous].min()
    unordered = split(source)
    assert any(
        source.days[known].max() > source.days[anonymous].min()
        for anonymous, known in zip(unordered.anonymous, unordered.known, strict=True)
    )


def test_of_one_day_what_comes_first_in_the_source_is_older() -> None:
    source = replace(examples(users=1, groups=10), groups=torch.full((len(examples(users=1, groups=10)),), -1))
    source = replace(source, days=torch.full((len(source),), DAY))
    result = split(source, prior="chrono", test_fraction=0.0, share=(0.5, 0.5))
    half = len(source) // 2
    assert result.known[0].tolist() == list(range(half))
    assert result.anonymous[0].tolist() == list(range(half, len(source)))


def test_a_photoset_of_nearly_everything_still_leaves_two_sides() -> None:
    groups = torch.tensor([0] * 50 + [1])
    source = OwnedExamples(
        features=torch.arange(51)[:, None],
        labels=torch.zeros(51),
        owners=torch.zeros(51, dtype=torch.int64),
        days=torch.full((51,), UNDATED),
        groups=groups,
        owner_ids=torch.tensor([0]),
    )
    for seed in range(4):
        result = split(source, prior="photoset", seed=seed)
        assert sorted((len(result.anonymous[0]), len(result.known[0]))) == [1, 50]


def test_a_split_is_a_function_of_its_seed() -> None:
    source = examples()
    one, two, other = split(source), split(source), split(source, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(parts(one), parts(two), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(parts(one), parts(other), strict=True))


def test_the_open_world_knows_nothing_of_the_unseen() -> None:
    source = examples(users=12)
    closed = split(source)
    result = split(source, world=OpenWorld(seen_fraction=0.5))
    assert torch.bincount(result.roles).tolist() == [4, 4, 4]
    for user, role in enumerate(result.roles.tolist()):
        known, anonymous = len(result.known[user]), len(result.anonymous[user])
        assert (known > 0) == (role in (SEEN, HOLDOUT))
        assert (anonymous > 0) == (role in (SEEN, UNSEEN))
        assert known in (0, len(closed.known[user]))
        assert anonymous in (0, len(closed.anonymous[user]))


def test_whoever_is_seen_stays_so_when_more_are_and_the_holdout_is_the_same() -> None:
    source = examples(users=12)
    few, many = (split(source, world=OpenWorld(seen_fraction=share)).roles for share in (0.25, 0.75))
    assert torch.equal(few == HOLDOUT, many == HOLDOUT)
    assert ((few != SEEN) | (many == SEEN)).all()
    assert (few == SEEN).sum() < (many == SEEN).sum()


def test_the_control_keeps_neither_sizes_nor_anyones_data() -> None:
    source = examples(users=9, groups=40)
    plain, control = split(source), split(source, iid=True)
    sizes = [len(part) for part in (*control.anonymous, *control.known)]
    assert max(sizes) - min(sizes) <= 1
    for side in ("anonymous", "known"):
        before, after = getattr(plain, side), getattr(control, side)
        own = torch.stack([(source.owners[part] == user).double().mean() for user, part in enumerate(after)])
        assert own.mean() < 0.3
        assert all((source.owners[part] == user).all() for user, part in enumerate(before))
    assert all(torch.equal(a, b) for a, b in zip(plain.test, control.test, strict=True))


def test_the_control_deals_to_as_many_devices_as_are_asked_for() -> None:
    source = examples(users=9, groups=40)
    everybody, few = split(source, iid=True), split(source, iid=True, dealt_to=3)
    sizes = [len(part) for part in (*few.anonymous, *few.known)]
    assert sum(size > 0 for size in sizes) == 3
    assert sum(sizes) == sum(len(part) for part in (*everybody.anonymous, *everybody.known))
    dealt = torch.cat([*few.anonymous, *few.known])
    assert len(torch.unique(dealt)) == len(dealt)


def test_a_profile_holds_only_what_fits_it_and_the_truth_says_who_does() -> None:
    source = examples()
    member = members(source)
    result = split(source, prior="profile", profiles=PROFILES, member=member)
    assert result.profiles == ("even", "third")
    *known, contrast = (part - len(source) for part in result.known)
    for number, part in enumerate(known):
        assert len(part)
        assert member[number, part].all()
    assert len(contrast) == len(source) // 3
    assert member[:, contrast].double().mean() == pytest.approx(float(member.double().mean()), abs=0.1)
    fit = profile_fit(result.anonymous, member)
    slow = [[sum(bool(row[i]) for i in part.tolist()) / len(part) for row in member] for part in result.anonymous]
    assert torch.allclose(fit, torch.tensor(slow, dtype=fit.dtype))


def test_units_are_sorted_as_by_hand() -> None:
    owners, units = torch.tensor([1, 0, 1, 0, 0]), torch.tensor([7, 2, 4, 9, 2])
    order = in_order(owners, units, torch.tensor([5.0, 3.0, 5.0, 3.0, 0.0]))
    assert order.numbers.tolist() == [1, 4, 3, 0, 2]
    assert order.unit_begins.tolist() == [True, False, True, True, True]
    assert order.units_per_user(2).tolist() == [2, 2]


def test_what_is_undated_is_refused_under_chrono_only() -> None:
    source = examples()
    days = source.days.clone()
    days[[5, 9]] = UNDATED
    undated = replace(source, days=days)
    split(undated)
    user = int(source.owner_ids[source.owners[5]])
    with pytest.raises(InputError, match=rf"2 of {len(source)} undated, the first of user {user}\b.*undated: drop"):
        split(undated, prior="chrono")


@pytest.mark.parametrize(("prior", "unit"), [("random", "examples"), ("chrono", "posts"), ("photoset", "photosets")])
def test_a_user_without_enough_is_refused_or_left_out(prior: Any, unit: str) -> None:
    source = examples()
    single = (source.owners == 4).nonzero().flatten()
    kept = torch.cat([(source.owners != 4).nonzero().flatten(), single[:1]]).sort().values
    poor = source.select(kept)
    with pytest.raises(InputError, match=rf"at least 2 {unit} .*1 of user 12 with 1 examples \(1 such users\)"):
        split(poor, prior=prior)
    left = without_poor_users(poor, Devices(prior=prior, too_few="drop"))
    assert left.owner_ids.tolist() == [0, 3, 6, 9, 15, 18, 21, 24]
    assert left.dropped.users == 1
    assert len(split(left, prior=prior).known) == 8


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"test_fraction": 1.0}, "test_fraction"),
        ({"prior": "profile"}, "0 profiles with the prior profile"),
        ({"profiles": PROFILES}, "2 profiles with the prior random"),
        ({"prior": "profile", "profiles": PROFILES, "iid": True}, "iid"),
        ({"dealt_to": 3}, "3 with iid: False"),
        ({"dealt_to": 0, "iid": True}, "0 with iid: True"),
    ],
)
def test_settings_that_contradict_themselves_are_refused(settings: dict[str, Any], found: str) -> None:
    with pytest.raises(InputError, match=found):
        Devices(**settings)


def test_worlds_and_profiles_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="seen_fraction"):
        OpenWorld(seen_fraction=1.5)
    with pytest.raises(InputError, match="profile guns"):
        Profile(name="guns", terms=[])
    source = examples()
    nothing = torch.zeros(1, len(source), dtype=torch.bool)
    with pytest.raises(InputError, match="profile guns"):
        split(source, prior="profile", profiles=(Profile(name="guns", terms=["gun"]),), member=nothing)
