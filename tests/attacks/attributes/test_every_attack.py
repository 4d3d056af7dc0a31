"""Every attack on attributes: it succeeds on a leaky toy, and is at chance where updates say nothing of the person."""

import dataclasses
import functools
from statistics import fmean

import pytest
import torch

from fedleak.attacks.attributes import AttributeLDA, ExampleCounts, MajorityValue, PropertyForest
from fedleak.attacks.attributes.estimates import AttributeEstimate, known_people
from fedleak.attacks.attributes.messages import AttributeAttack
from fedleak.core.errors import ViewError
from fedleak.core.seeding import generator_for
from fedleak.core.view import ATTRIBUTE, ATTRIBUTE_PSEUDONYMS
from tests.attacks.runs import run
from tests.attribute_toys import Toy, toy, trained

READERS = (AttributeLDA(folds=3), PropertyForest(trees=60))
BASELINES = (MajorityValue(), ExampleCounts())
EVERY = pytest.mark.parametrize("attack", [*READERS, *BASELINES], ids=lambda attack: attack.name)
READING = pytest.mark.parametrize("attack", READERS, ids=lambda attack: attack.name)


@functools.cache
def small_toy_inferred(attack: AttributeAttack) -> AttributeEstimate:
    return run(attack, toy(people=60)[0], AttributeEstimate)


def auc(attack: AttributeAttack, made: Toy) -> dict[str, float]:
    """AUC by attribute."""
    view, truth = made
    scores = run(attack, view, AttributeEstimate).score(view, truth)
    found: dict[str, list[float]] = {}
    for name, value in zip(scores.settings["attribute"], scores.metrics["auc"].tolist(), strict=True):
        found.setdefault(str(name), []).append(value)
    return {name: fmean(values) for name, values in found.items()}


@READING
def test_an_attribute_that_shifts_the_update_is_found_and_another_is_not(attack: AttributeAttack) -> None:
    found = auc(attack, toy(people=200))
    assert found["colour"] > 0.9
    assert abs(found["luck"] - 0.5) < 0.12


@READING
def test_an_attribute_of_several_values_is_found(attack: AttributeAttack) -> None:
    assert auc(attack, toy(people=200, rounds=1, values=4, leak=3.0))["colour"] > 0.9


@EVERY
def test_nobody_whose_attributes_are_known_is_asked_about(attack: AttributeAttack) -> None:
    view, _ = toy(people=60)
    asked = view.pseudonyms[small_toy_inferred(attack).messages]
    assert not torch.isin(asked, known_people(view)).any()
    assert len(asked) == len(torch.unique(asked)) == 30


@EVERY
def test_the_order_of_the_known_people_and_a_second_run_change_nothing(attack: AttributeAttack) -> None:
    view, _ = toy(people=60)
    order = torch.randperm(30, generator=generator_for(0, "order"))
    other = dataclasses.replace(view, auxiliary={name: value[order] for name, value in view.auxiliary.items()})
    second = run(attack, other, AttributeEstimate)
    for name, evidence in small_toy_inferred(attack).evidence.items():
        assert torch.allclose(evidence, second.evidence[name])


@EVERY
def test_people_of_whom_an_attribute_is_unknown_are_left_out(attack: AttributeAttack) -> None:
    view, truth = toy(people=60, rounds=1)
    colour = view.auxiliary[f"{ATTRIBUTE}colour"].clone()
    colour[:10] = -1
    view = dataclasses.replace(view, auxiliary={**view.auxiliary, f"{ATTRIBUTE}colour": colour})
    held = truth["attributes"].clone()
    held[held[:, 1] == 2] = -1
    scores = run(attack, view, AttributeEstimate).score(view, {**truth, "attributes": held})
    first = torch.unique(truth["clients"][~torch.isin(view.pseudonyms, known_people(view))])
    expected = sum(int(held[client, 0] >= 0) for client in first.tolist())
    assert sum(name == "colour" for name in scores.settings["attribute"]) == expected


@EVERY
def test_a_view_without_known_people_is_refused(attack: AttributeAttack) -> None:
    view, _ = toy()
    colour, luck = f"{ATTRIBUTE}colour", f"{ATTRIBUTE}luck"
    known = dict(view.auxiliary)
    for auxiliary, word in (
        ({colour: known[colour], luck: known[luck]}, "attribute_pseudonyms"),
        ({ATTRIBUTE_PSEUDONYMS: known[ATTRIBUTE_PSEUDONYMS]}, "attributes of known people"),
        ({**known, ATTRIBUTE_PSEUDONYMS: known[ATTRIBUTE_PSEUDONYMS] + 10**6}, "0 known"),
        ({**known, luck: torch.zeros(60, dtype=torch.int64)}, "luck"),
    ):
        with pytest.raises(ViewError, match=word):
            run(attack, dataclasses.replace(view, auxiliary=auxiliary), AttributeEstimate)


def test_example_counts_find_an_attribute_of_the_amount_of_data() -> None:
    view, truth = toy(people=300)
    counts = 10 + 40 * truth["attributes"][:, 0] + torch.arange(len(truth["clients"])) % 30
    found = auc(ExampleCounts(), (dataclasses.replace(view, example_counts=counts), truth))
    assert found["colour"] > 0.95
    assert auc(ExampleCounts(), (view, truth))["colour"] == 0.5
    assert auc(MajorityValue(), (view, truth)) == {"colour": 0.5, "luck": 0.5}


@pytest.mark.integration
@READING
def test_the_taste_of_a_recommenders_users_is_found(attack: AttributeAttack) -> None:
    assert auc(attack, trained())["half"] > (0.85 if isinstance(attack, AttributeLDA) else 0.65)


@pytest.mark.integration
@READING
def test_attributes_exchanged_before_the_training_are_not_found(attack: AttributeAttack) -> None:
    assert abs(auc(attack, trained(shuffled=True))["half"] - 0.5) < 0.2


@pytest.mark.integration
def test_a_recording_gives_the_server_the_attributes_of_the_known_people_only() -> None:
    view, truth = trained()
    known = torch.isin(view.pseudonyms, known_people(view))
    assert int(known.sum()) == len(known_people(view)) == view.victims // 2
    order = known_people(view).argsort()
    place = order[torch.searchsorted(known_people(view)[order], view.pseudonyms[known].contiguous())]
    assert torch.equal(view.auxiliary[f"{ATTRIBUTE}half"][place], truth["attributes"][known, 0])
    assert not view.priors


@pytest.mark.integration
def test_rows_that_were_not_sent_are_zeros() -> None:
    from fedleak.attacks.attributes.messages import blocks, products
    from fedleak.attacks.re_identification.messages import layer_vectors

    view, _ = trained()
    part = next(view.each_round())
    whole = layer_vectors(part, None)
    assert torch.equal(torch.cat([block for name in part.deltas for block in blocks(part, name)], 1), whole)
    assert torch.allclose(
        products(part, part, list(part.deltas)), whole.double() @ whole.double().T, rtol=1e-4, atol=1e-6
    )
