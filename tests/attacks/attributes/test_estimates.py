"""Scores of attributes: against scikit-learn, by hand, and the influences against leaving people out."""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from torch import Tensor

from fedleak.attacks.attributes.estimates import AttributeEstimate, scores_of_people
from fedleak.core.errors import ViewError
from fedleak.core.estimates import EstimateError
from fedleak.core.seeding import generator_for
from tests.attribute_toys import toy


def drawn(people: int, classes: int) -> tuple[Tensor, Tensor]:
    generator = generator_for(0, "evidence", people)
    held = torch.multinomial(torch.arange(1.0, classes + 1), people, replacement=True, generator=generator)
    evidence = torch.randn(people, classes, generator=generator, dtype=torch.float64)
    evidence += torch.nn.functional.one_hot(held, classes)
    return evidence.round(decimals=1), held  # with ties


@pytest.mark.parametrize("classes", [2, 5])
def test_the_means_are_those_of_scikit_learn(classes: int) -> None:
    evidence, held = drawn(150, classes)
    values, influences = scores_of_people(evidence, held)
    expected = np.mean([roc_auc_score(held.numpy() == k, evidence[:, k].numpy()) for k in range(classes)])
    assert float(values["auc"].mean()) == pytest.approx(expected)
    right = balanced_accuracy_score(held.numpy(), evidence.argmax(1).numpy())
    assert float(values["balanced-accuracy"].mean()) == pytest.approx(right)
    for name, own in influences.items():
        assert float(own.mean()) == pytest.approx(float(values[name].mean()))


def test_influences_are_nearly_the_jackknifes() -> None:
    evidence, held = drawn(120, 3)
    values, influences = scores_of_people(evidence, held)
    for name in values:
        whole, pseudo = float(values[name].mean()), []
        for person in range(len(held)):
            kept = torch.arange(len(held)) != person
            without = float(scores_of_people(evidence[kept], held[kept])[0][name].mean())
            pseudo.append(len(held) * whole - (len(held) - 1) * without)
        assert np.corrcoef(pseudo, influences[name].numpy())[0, 1] > 0.999
        assert np.std(pseudo) == pytest.approx(float(influences[name].std(correction=0)), rel=0.05)


def test_a_value_that_no_known_person_has_is_a_guess() -> None:
    evidence, held = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]).double(), torch.tensor([0, 1, 2])
    values, _ = scores_of_people(evidence, held)
    # AUC of the values 0, 1 and 2: 0.75, 1 and 0.5; two of three are right.
    assert float(values["auc"].mean()) == pytest.approx((0.75 + 1 + 0.5) / 3)
    assert float(values["balanced-accuracy"].mean()) == pytest.approx(2 / 3)


def test_people_of_one_value_have_no_score() -> None:
    values, influences = scores_of_people(torch.zeros(4, 2).double(), torch.ones(4, dtype=torch.int64))
    assert bool(values["auc"].isnan().all())
    assert bool(influences["auc"].isnan().all())


def estimate(asked: slice = slice(60, 120)) -> AttributeEstimate:
    """Zeros about some people, of whom the known ones are the first 60."""
    view, _ = toy()
    known = torch.isin(view.pseudonyms, view.auxiliary["attribute_pseudonyms"])
    order = torch.cat([known[:120].nonzero().flatten(), (~known[:120]).nonzero().flatten()])
    return AttributeEstimate(messages=order[asked], evidence={"colour": torch.zeros(60, 2), "luck": torch.zeros(60, 3)})


def test_each_attribute_has_rows_of_its_own() -> None:
    view, truth = toy()
    made = estimate()
    scores = made.score(view, truth)
    assert scores.settings["attribute"] == ["colour"] * 60 + ["luck"] * 60
    assert scores.units is not None
    assert scores.units.tolist() == truth["clients"][made.messages].tolist() * 2
    assert set(scores.metrics["auc"].tolist()) != {0.0}
    assert scores.items is not None
    assert scores.items.tolist() == [2] * 60 + [3] * 60


@pytest.mark.parametrize(
    ("asked", "evidence", "word"),
    [
        (slice(0, 60), {}, "known"),
        (slice(60, 120), {"colour": torch.zeros(60, 2)}, "expected colour, luck"),
        (slice(60, 120), {"colour": torch.full((60, 2), torch.nan), "luck": torch.zeros(60, 3)}, "finite"),
    ],
)
def test_an_estimate_of_known_people_or_of_other_attributes_is_a_defect(
    asked: slice, evidence: dict[str, Tensor], word: str
) -> None:
    made = estimate(asked)
    with pytest.raises(EstimateError, match=word):
        dataclasses.replace(made, evidence=evidence or made.evidence).check(toy()[0])


def test_truth_of_other_attributes_is_refused() -> None:
    view, truth = toy()
    with pytest.raises(ViewError, match="truth"):
        estimate().score(view, {**truth, "attributes": truth["attributes"][:, [0, 1, 1]]})
