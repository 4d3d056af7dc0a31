"""Every attack on a pool of records: found on a leaky toy, at chance where the update says nothing about the truth."""

import dataclasses

import pytest
import torch

from attacks.base import Attack
from attacks.registry import REGISTRY
from protocol.errors import ViewError
from protocol.view import CANDIDATES
from tests.membership_toys import CLIENTS, ONE_EPOCH, scored, several_rounds, toy

ALL = [kind() for kind in REGISTRY.values() if kind.family in ("record-membership", "source")]
NO_UPDATE = {"random-member", "sent-model-loss", "random-source", "gradient-norm", "class-counts"}
"""What does not tell the records of one update apart; the norm of a gradient is of the model alone."""
READING = [attack for attack in ALL if attack.name not in NO_UPDATE]
SEEDS = range(6)


def chance(attack: Attack) -> float:
    return 1 / CLIENTS if attack.family == "source" else 0.5


def mean(attack: Attack, *, dealt_anew: bool = False, change: object = None) -> float:
    found = []
    for seed in SEEDS:
        view, truth = toy(seed=seed, dealt_anew=dealt_anew)
        if change == "another client's update":
            view = dataclasses.replace(view, deltas={name: value.roll(1, 0) for name, value in view.deltas.items()})
        if change == "noise":
            draws = torch.Generator().manual_seed(seed)
            noise = {n: v.std() * torch.randn(v.shape, generator=draws) for n, v in view.deltas.items()}
            view = dataclasses.replace(view, deltas=noise)
        found.append(scored(attack, view, truth))
    return sum(found) / len(found)


@pytest.mark.parametrize("attack", READING, ids=lambda attack: attack.name)
def test_records_of_a_leaky_client_are_found(attack: Attack) -> None:
    assert mean(attack) > chance(attack) + 0.03


@pytest.mark.parametrize("attack", ALL, ids=lambda attack: attack.name)
def test_updates_of_other_records_are_at_chance(attack: Attack) -> None:
    """The truth is shuffled before the clients train."""
    assert abs(mean(attack, dealt_anew=True) - chance(attack)) < 0.05


@pytest.mark.parametrize("attack", ALL, ids=lambda attack: attack.name)
def test_noise_is_at_chance(attack: Attack) -> None:
    assert abs(mean(attack, change="noise") - chance(attack)) < 0.05


@pytest.mark.parametrize("attack", READING, ids=lambda attack: attack.name)
def test_another_clients_update_is_no_better_than_chance(attack: Attack) -> None:
    """A record of that other client is a non-member here, so what is certain of it is certainly wrong."""
    assert mean(attack, change="another client's update") < chance(attack) + 0.03


@pytest.mark.parametrize("attack", READING, ids=lambda attack: attack.name)
def test_the_order_of_the_candidates_changes_nothing(attack: Attack) -> None:
    view, truth = toy()
    order = torch.randperm(truth["member"].shape[1], generator=torch.Generator().manual_seed(0))
    moved = dataclasses.replace(view, auxiliary={name: value[order] for name, value in view.auxiliary.items()})
    other = {**truth, "member": truth["member"][:, order]}
    assert scored(attack, moved, other) == pytest.approx(scored(attack, view, truth), abs=1e-3)


@pytest.mark.parametrize("attack", READING, ids=lambda attack: attack.name)
def test_several_rounds_are_read(attack: Attack) -> None:
    view, truth = several_rounds(3)
    assert scored(attack, view, truth) > chance(attack)


@pytest.mark.parametrize("name", ["candidate-fit", "fedmia-2", "average-cosine"])
def test_more_rounds_tell_more(name: str) -> None:
    attack = next(one for one in ALL if one.name == name)
    assert scored(attack, *several_rounds(6)) > scored(attack, *several_rounds(1))


def test_the_joint_fit_is_above_the_published_attacks() -> None:
    view, truth = toy(ONE_EPOCH)
    found = {one.name: scored(one, view, truth) for one in ALL if one.family == "record-membership"}
    ours = found.pop("candidate-fit")
    assert ours > max(found.values()) + 0.1


def test_a_pool_without_records_is_refused() -> None:
    view, _ = toy()
    empty = dataclasses.replace(view, auxiliary={name: value[:0] for name, value in view.auxiliary.items()})
    with pytest.raises(ViewError, match="at least one candidate"):
        READING[0](empty, generator=torch.Generator())
    nothing = dataclasses.replace(view, auxiliary={})
    with pytest.raises(ViewError, match=CANDIDATES):
        READING[0](nothing, generator=torch.Generator())
