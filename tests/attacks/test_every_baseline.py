"""Baselines do not read a client's update: what they say of it stays the same whatever it sent."""

import contextlib
import dataclasses
import functools

import pytest
import torch
from torch import Tensor

from attacks.base import Attack
from attacks.composition.uniform_present import UniformPresent
from attacks.record_membership.class_counts import ClassCounts
from attacks.registry import REGISTRY
from protocol.errors import ViewError
from protocol.seeding import generator_for
from protocol.view import POPULARITY, View
from reports.statement.measured import reading_baselines
from tests.attacks.runs import of_noise, plain_view
from tests.attribute_toys import toy as attribute_toy
from tests.composition_toys import views
from tests.deanonymization_toys import joined
from tests.foreign_toys import view as foreign_view
from tests.membership_toys import several_rounds
from tests.membership_toys import toy as membership_toy
from tests.word_toys import words_seen

pytestmark = pytest.mark.inventory

CONTROLS = {
    # The update of another client, in place of the client's own.
    *("unrelated-update", "unrelated-separate", "unrelated-informed"),
    # Sums of several clients, whose mean or wrong equations say nothing of one of them.
    *("mean-of-sums", "rounds-to-reveal-shuffled", "holders-to-reveal-shuffled", "words-to-reveal-shuffled"),
    # The number of messages alone.
    "coin-guess",
}
"""Baselines that read updates, but nothing that says more of the client they are about."""
ITEMS = "item_embedding.weight"
BASELINES = {key: kind for key, kind in REGISTRY.items() if kind.baseline and kind.name not in CONTROLS}


@functools.cache
def seen() -> tuple[View, ...]:
    """Views of classifiers, candidates, words, devices and people, of one round and of several."""
    served = dataclasses.replace(
        plain_view(6, deltas={ITEMS: torch.rand(6, 20, 4)}, model={ITEMS: torch.rand(20, 4)}),
        row_parameters=frozenset({ITEMS}),
        served=torch.arange(20).expand(6, -1),
        priors={POPULARITY: torch.randint(1, 40, (6, 20))},
    )
    of_rounds = (several_rounds(2)[0], attribute_toy()[0], joined()[0])
    (composition,), _ = views()
    return foreign_view(), composition, membership_toy()[0], words_seen()[0], served, *of_rounds


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
    if not found:
        pytest.skip(f"no toy has what {attack.name} needs")
    for view, before in found:
        after = tensors(attack, of_noise(view))
        assert before.keys() == after.keys()
        assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_a_statement_counts_only_controls_as_reading_the_update() -> None:
    """The others stand in a statement as what is known without the update."""
    reading = reading_baselines([kind() for kind in BASELINES.values()])
    assert not reading
    assert CONTROLS == set(reading_baselines([kind() for kind in REGISTRY.values()]))


def test_attacks_that_read_one_thing_of_the_update_are_no_baselines() -> None:
    """Equal shares of the classes that are present, and classes without records."""
    for attack in (UniformPresent(), ClassCounts()):
        assert not attack.baseline
        ((view, before), *_) = answered(attack)
        after = tensors(attack, of_noise(view))
        assert any(not torch.equal(value, after[name]) for name, value in before.items())
