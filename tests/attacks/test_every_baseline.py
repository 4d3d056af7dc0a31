"""Baselines do not read a client's update: what they say of it stays the same whatever it sent."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedleak.attacks.composition.uniform_present import UniformPresent
from fedleak.attacks.reconstruction.toy import toy as reconstruction_toy
from fedleak.attacks.record_membership.class_counts import ClassCounts
from fedleak.attacks.trees import toy as trees_toy
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.foltr_es import UTILITY, FOLtRESAlgorithm
from fedleak.client.matrix_factorization import MFAlgorithm
from fedleak.client.network import ModuleAlgorithm
from fedleak.core.attack import Attack
from fedleak.core.errors import ViewError
from fedleak.core.seeding import generator_for
from fedleak.core.view import ITEM_EMBEDDING, LEANING, POPULARITY, PUBLIC_INTERACTIONS, RoundView, View
from fedleak.evaluation.registry import REGISTRY
from tests.attacks.runs import of_noise, plain_view
from tests.attribute_toys import toy as attribute_toy
from tests.composition_toys import views
from tests.deanonymization_toys import joined
from tests.foreign_toys import view as foreign_view
from tests.membership_toys import several_rounds
from tests.membership_toys import toy as membership_toy
from tests.sum_toys import summed
from tests.tables_of_people import people, people_view
from tests.word_toys import words_seen

pytestmark = pytest.mark.inventory

CONTROLS = {
    # The update of another client, in place of the client's own.
    *("unrelated-update", "unrelated-separate", "unrelated-informed", "unrelated-head-features", "unrelated-tree"),
    # Sums of several clients, whose mean or wrong equations say nothing of one of them.
    *("mean-of-sums", "rounds-to-reveal-shuffled", "holders-to-reveal-shuffled", "words-to-reveal-shuffled"),
    # The number of messages alone.
    "coin-guess",
}
"""Baselines that read updates, but nothing that says more of the client they are about."""
BASELINES = {key: kind for key, kind in REGISTRY.items() if kind.baseline and kind.name not in CONTROLS}


@functools.cache
def seen() -> tuple[View, ...]:
    """Views of all kinds of clients, of one round and of several: what each baseline needs is in one of them."""
    served = dataclasses.replace(
        plain_view(6, deltas={ITEM_EMBEDDING: torch.rand(6, 20, 4)}, model={ITEM_EMBEDDING: torch.rand(20, 4)}),
        row_parameters=frozenset({ITEM_EMBEDDING}),
        served=torch.arange(20).expand(6, -1),
        priors={POPULARITY: torch.randint(1, 40, (6, 20)), LEANING: torch.ones(6)},
        auxiliary={PUBLIC_INTERACTIONS: (torch.rand(30, 20) < 0.3).nonzero()},
        algorithm=MFAlgorithm(dim=4, margin_loss="log", local=LocalTraining()),
    )
    columns, values, labels = people(32)
    rows, _ = people_view(values, labels, columns, clients=4)
    head, _ = reconstruction_toy("head")
    (composition,), _ = views()
    sums = summed([composition, composition], [torch.arange(2), torch.arange(2)])
    of_rounds = (several_rounds(2)[0], attribute_toy()[0], joined()[0], sums)
    of_one_round = (foreign_view(), composition, membership_toy()[0], words_seen()[0], served, rows, head)
    of_trees = (trees_toy.toy()[0], trees_toy.rounds_toy()[0])
    return *of_one_round, *of_trees, one_output(logit_loss), one_output(squared_loss), ranked(), *of_rounds


def logit_loss(outputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    return functional.binary_cross_entropy_with_logits(outputs[:, 0], targets.float(), reduction=reduction)


def squared_loss(outputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    return functional.mse_loss(outputs[:, 0], targets, reduction=reduction)


def one_output(loss: Callable[..., Tensor]) -> RoundView:
    """Clients of a network with one output, for a yes or no or for a number."""
    algorithm = ModuleAlgorithm(module=nn.Sequential(nn.Linear(2, 1)), loss_function=loss, local=LocalTraining())
    deltas = {"0.weight": torch.randn(4, 1, 2), "0.bias": torch.randn(4, 1)}
    model = {"0.weight": torch.randn(1, 2), "0.bias": torch.randn(1)}
    return plain_view(4, deltas=deltas, model=model, algorithm=algorithm)


def ranked() -> RoundView:
    """Clients that click in three ranked lists of four documents."""
    return plain_view(
        6,
        deltas={UTILITY: torch.rand(6, 1)},
        model={"ranker.weight": torch.zeros(2)},
        served=torch.arange(12).expand(6, -1),
        lists=torch.arange(3).repeat_interleave(4).expand(6, -1),
        algorithm=FOLtRESAlgorithm(
            metric="max-rr", numbers=1, truthful=1.0, click_model="informational", grade_law=[0.8, 0.13, 0.07]
        ),
    )


def tensors(attack: Attack, view: View) -> dict[str, Tensor]:
    estimate = attack(dataclasses.replace(view), generator=generator_for(0, "attack"))
    fields = {field.name: getattr(estimate, field.name) for field in dataclasses.fields(estimate)}
    return {name: value.double().nan_to_num() for name, value in fields.items() if isinstance(value, Tensor)}


def answered(attack: Attack) -> list[tuple[View, dict[str, Tensor]]]:
    """The views that an attack can read, and what it says of them."""
    found = []
    for view in seen():
        if isinstance(view, attack.view) and not view.missing(attack.threat_model.needs):
            with contextlib.suppress(ViewError):
                found.append((view, tensors(attack, view)))
    return found


@pytest.mark.parametrize("kind", BASELINES.values(), ids=BASELINES)
def test_noise_in_place_of_the_updates_changes_no_answer(kind: type[Attack]) -> None:
    attack = kind()
    found = answered(attack)
    assert found, f"no view has what {attack.name} needs"
    for view, before in found:
        after = tensors(attack, of_noise(view))
        assert before.keys() == after.keys()
        assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_only_controls_read_updates() -> None:
    """The others are what is known without the update."""
    assert {kind.comparison() for kind in BASELINES.values()} == {"prior", "blind"}
    assert {kind.name for kind in REGISTRY.values() if kind.comparison() == "control"} == CONTROLS


def test_attacks_that_read_one_thing_of_the_update_are_no_baselines() -> None:
    """Equal shares of the classes that are present, and classes without records."""
    for attack in (UniformPresent(), ClassCounts()):
        assert not attack.baseline
        ((view, before), *_) = answered(attack)
        after = tensors(attack, of_noise(view))
        assert any(not torch.equal(value, after[name]) for name, value in before.items())
