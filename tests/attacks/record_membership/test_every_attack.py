"""Every attack on a pool of records: found on a leaky toy, at chance where the update says nothing about the truth."""

import dataclasses
import functools
from typing import Literal

import pytest
import torch

from fedleak.core.attack import Attack
from fedleak.core.errors import ViewError
from fedleak.core.view import CANDIDATES
from fedleak.evaluation.registry import REGISTRY
from tests.attacks.runs import of_noise, of_others
from tests.membership_toys import CLIENTS, ONE_EPOCH, Toy, scored, several_rounds, toy

ALL = [
    kind()
    for kind in REGISTRY.values()
    if kind.family in ("record-membership", "source") and not toy()[0].missing(kind.threat_model.needs)
]
NO_UPDATE = {"random-member", "sent-model-loss", "random-source", "gradient-norm", "class-counts"}
"""What does not tell the records of one update apart; the norm of a gradient is of the model alone."""
READING = [attack for attack in ALL if attack.name not in NO_UPDATE]
Change = Literal["none", "dealt anew", "another client's update", "noise"]


@functools.cache
def changed(change: Change, seed: int) -> Toy:
    view, truth = toy(seed=seed, dealt_anew=change == "dealt anew")
    if change == "another client's update":
        view = of_others(view)
    return (of_noise(view, seed) if change == "noise" else dataclasses.replace(view)), truth


def above_chance(attack: Attack, change: Change = "none") -> float:
    """By how much the mean over six trainings is above guessing."""
    chance = 1 / CLIENTS if attack.family == "source" else 0.5
    return sum(scored(attack, *changed(change, seed)) for seed in range(6)) / 6 - chance


@pytest.mark.parametrize("attack", ALL, ids=lambda attack: attack.name)
def test_updates_of_other_records_and_noise_are_at_chance(attack: Attack) -> None:
    """The truth is shuffled before the clients train."""
    assert abs(above_chance(attack, "dealt anew")) < 0.05
    assert abs(above_chance(attack, "noise")) < 0.05


@pytest.mark.parametrize("attack", READING, ids=lambda attack: attack.name)
def test_the_order_of_the_candidates_changes_nothing(attack: Attack) -> None:
    view, truth = toy()
    order = torch.randperm(truth["member"].shape[1], generator=torch.Generator().manual_seed(0))
    moved = dataclasses.replace(view, auxiliary={name: value[order] for name, value in view.auxiliary.items()})
    other = {**truth, "member": truth["member"][:, order]}
    assert scored(attack, moved, other) == pytest.approx(scored(attack, view, truth), abs=1e-3)


@pytest.mark.integration
@pytest.mark.parametrize("attack", READING, ids=lambda attack: attack.name)
def test_several_rounds_are_read(attack: Attack) -> None:
    several = scored(attack, *several_rounds(3))
    assert several > (1 / CLIENTS if attack.family == "source" else 0.5)
    if attack.name in ("candidate-fit", "fedmia-2", "average-cosine"):
        assert several > scored(attack, *several_rounds(1))


def test_the_joint_fit_is_above_the_published_attacks() -> None:
    view, truth = toy(ONE_EPOCH)
    found = {one.name: scored(one, view, truth) for one in ALL if one.family == "record-membership"}
    ours = found.pop("candidate-fit")
    assert ours > max(found.values()) + 0.1


def test_a_pool_without_records_is_refused() -> None:
    view, _ = toy()
    empty = dataclasses.replace(view, auxiliary={name: value[:0] for name, value in view.auxiliary.items()})
    with pytest.raises(ViewError, match="candidate"):
        READING[0](empty, generator=torch.Generator())
    nothing = dataclasses.replace(view, auxiliary={})
    with pytest.raises(ViewError, match=CANDIDATES):
        READING[0](nothing, generator=torch.Generator())
