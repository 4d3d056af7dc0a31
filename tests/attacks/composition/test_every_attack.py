"""Decaf and ours beat equal shares on a leaky toy, tell one client from another, and refuse what they cannot use."""

import dataclasses
import functools

import pytest
import torch
from torch import Tensor

from fedleak.attacks.composition.base import CompositionAttack, by_information
from fedleak.attacks.composition.baselines import RandomGuess
from fedleak.attacks.composition.closed_form import ClosedForm
from fedleak.attacks.composition.decaf import Decaf
from fedleak.attacks.composition.decaf_match import DecafMatch
from fedleak.attacks.composition.estimates import CompositionEstimate
from fedleak.attacks.composition.exact_counts import ExactCounts
from fedleak.attacks.composition.label_inference import AuxiliaryGradients, SoftLabels
from fedleak.attacks.composition.llg import LLG
from fedleak.attacks.composition.output_counts import OutputCounts
from fedleak.attacks.composition.rlu import RLU
from fedleak.attacks.composition.uniform_present import UniformPresent
from fedleak.client.simulated_clients import nearby_compositions
from fedleak.core.attack import Attack
from fedleak.core.errors import ViewError
from fedleak.core.estimates import EstimateError
from fedleak.core.release import Release
from fedleak.core.seeding import generator_for
from tests.attacks.runs import of_noise, plain_view
from tests.composition_toys import estimate, l1, views

MATCH = DecafMatch(shared=40, local=10)
LADDER: list[CompositionAttack] = [ClosedForm(), ExactCounts(), DecafMatch(passes=0), MATCH]
PUBLISHED: list[CompositionAttack] = [
    *(Decaf(), Decaf(solver="early-stopped"), Decaf(bases="one-epoch")),
    Decaf(bases="one-epoch", calibrator_share="whole"),
]
COUNTS: list[CompositionAttack] = [LLG(), RLU(), SoftLabels(), AuxiliaryGradients()]
ON_THE_UPDATE: list[CompositionAttack] = [*PUBLISHED, *COUNTS, *LADDER]
EVERY: list[CompositionAttack] = [*ON_THE_UPDATE, RandomGuess(), UniformPresent()]


@functools.cache
def on_the_toy(attack: CompositionAttack) -> CompositionEstimate:
    return estimate(attack, views()[0][0])


def with_one_pass(attack: CompositionAttack) -> CompositionAttack:
    """Ours with less work, where it is not about how near it comes."""
    return dataclasses.replace(MATCH, passes=1) if attack is MATCH else attack


@pytest.mark.integration
def test_ours_halves_the_published_error() -> None:
    true = views()[1]
    published = min(l1(on_the_toy(attack).proportions, true) for attack in PUBLISHED)
    assert l1(on_the_toy(MATCH).proportions, true) < 0.5 * published


@pytest.mark.integration
def test_ours_finds_rare_classes_that_the_published_rule_misses() -> None:
    held = views()[1] > 0
    missed = int((held & ~on_the_toy(PUBLISHED[0]).present).sum())
    assert missed > 3
    for attack in (LADDER[0], MATCH):
        assert int((held & ~on_the_toy(attack).present).sum()) < missed / 2


@pytest.mark.integration
def test_ours_calls_hardly_any_null_class_present() -> None:
    null = views()[1] == 0
    assert int(null.sum()) == 27
    assert int((null & on_the_toy(MATCH).present).sum()) <= 3


@pytest.mark.integration
def test_settled_victims_are_not_simulated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    (view,), _ = views()
    drawn = []

    def counted(centre: Tensor, count: int, *, spread: float, generator: torch.Generator) -> Tensor:
        drawn.append(len(centre))
        return nearby_compositions(centre, count, spread=spread, generator=generator)

    monkeypatch.setattr("fedleak.attacks.composition.decaf_match.nearby_compositions", counted)
    estimate(DecafMatch(shared=40, local=6, passes=6), view)
    assert drawn[0] == view.victims
    assert drawn == sorted(drawn, reverse=True)
    assert sum(drawn) < 4 * view.victims


@pytest.mark.integration
def test_an_update_that_says_nothing_leaves_ours_no_better_than_equal_shares() -> None:
    (view,), true = views()
    found = estimate(with_one_pass(MATCH), of_noise(view))
    assert l1(found.proportions, true) > 0.9 * l1(torch.full_like(true, 0.1), true)


@pytest.mark.integration
def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    true = views()[1]
    found = on_the_toy(MATCH)
    told = found.present & (found.present.sum(1, keepdim=True) > 1)
    inside = (true >= found.low) & (true <= found.high)
    assert 0.85 < float(inside[told].double().mean()) <= 1
    assert float((found.high - found.low)[told].mean()) < 0.1


def test_earlier_layers_tell_less_than_the_last_and_other_layers_are_refused() -> None:
    (view,), true = views()
    last, hidden = (estimate(Decaf(null_classes="none", layer=layer), view).proportions for layer in (None, "body.6"))
    named = estimate(Decaf(null_classes="none", layer="output"), view)
    torch.testing.assert_close(named.proportions, last)
    assert l1(last, true) < l1(hidden, true)
    with pytest.raises(ViewError, match="body"):
        Decaf(layer="body.3").run(view, generator=generator_for(0, "attack"))


def test_several_rounds_of_decaf_are_the_normalised_mean() -> None:
    rounds, _ = views(rounds=2)
    alone = [estimate(Decaf(), view).proportions for view in rounds]
    both = estimate(Decaf(rounds="all"), rounds[1]).proportions
    # The order of mini-batches is drawn again for every estimate, so the second's bases are not those of `alone`.
    mean = (alone[0] + alone[1]) / 2
    assert l1(both, mean / mean.sum(1, keepdim=True)) < 0.02


def test_rounds_combine_by_their_information() -> None:
    def one(share: float, half: float) -> CompositionEstimate:
        value = torch.tensor([[share, 1 - share, 0.0]], dtype=torch.float64)
        present = torch.tensor([[True, True, False]])
        width = half * present
        return CompositionEstimate(proportions=value, low=value - width, high=value + width, present=present)

    together = by_information([one(0.2, 0.1), one(0.5, 0.05)])
    weight = torch.tensor([1 / 0.1**2, 1 / 0.05**2])
    by_hand = float((weight * torch.tensor([0.2, 0.5])).sum() / weight.sum())
    assert float(together.proportions[0, 0]) == pytest.approx(by_hand, abs=1e-6)
    assert float(together.high[0, 0] - together.proportions[0, 0]) == pytest.approx(float(weight.sum() ** -0.5))
    assert float(together.proportions[0, 2]) == 0


def test_rounds_of_other_victims_are_refused() -> None:
    rounds, _ = views(rounds=2)
    strangers = dataclasses.replace(rounds[0], pseudonyms=rounds[0].pseudonyms.flip(0))
    with pytest.raises(ViewError, match="victims"):
        estimate(Decaf(rounds="all"), dataclasses.replace(rounds[1], earlier=(strangers,)))


@pytest.mark.parametrize("attack", ON_THE_UPDATE, ids=lambda attack: attack.name)
def test_views_without_images_of_a_class_or_without_the_last_layer_are_refused(attack: Attack) -> None:
    (view,), _ = views()
    kept = view.auxiliary["labels"] != 3
    poor = {name: value[kept] for name, value in view.auxiliary.items()}
    with pytest.raises(ViewError, match="class 3"):
        estimate(attack, dataclasses.replace(view, auxiliary=poor))
    body = {name: value for name, value in view.deltas.items() if name.startswith("body.")}
    with pytest.raises(ViewError, match="last layer"):
        estimate(attack, dataclasses.replace(view, deltas=body))


@pytest.mark.parametrize("attack", [a for a in EVERY if "algorithm" in a.threat_model.fields], ids=lambda a: a.name)
def test_no_learner_is_refused(attack: Attack) -> None:
    (view,), _ = views()
    with pytest.raises(ViewError, match="learner"):
        estimate(attack, dataclasses.replace(view, algorithm=None))


def test_labels_of_no_class_are_refused() -> None:
    (view,), _ = views()
    wrong = {**view.auxiliary, "labels": view.auxiliary["labels"] + 1}
    with pytest.raises(ViewError, match="label"):
        estimate(Decaf(), dataclasses.replace(view, auxiliary=wrong))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"proportions": torch.full((10, 10), 0.2)}, "sum to one"),
        ({"low": torch.full((10, 10), 0.5)}, "interval"),
        ({"present": torch.ones(10, 10)}, "bool"),
        ({"high": torch.ones(10, 9)}, "shape"),
    ],
)
def test_an_estimate_that_is_no_composition_is_a_defect(change: dict[str, torch.Tensor], word: str) -> None:
    equal = torch.full((10, 10), 0.1)
    right = CompositionEstimate(proportions=equal, low=equal, high=equal, present=torch.ones(10, 10, dtype=torch.bool))
    right.check(plain_view(10))
    with pytest.raises(EstimateError, match=word):
        dataclasses.replace(right, **change).check(plain_view(10))


@pytest.mark.integration
@pytest.mark.parametrize("attack", [ClosedForm(), OutputCounts(), DecafMatch(shared=40, local=10, passes=1)])
def test_declared_noise_that_is_not_there_is_not_expected(attack: CompositionAttack) -> None:
    (view,), _ = views()
    declared, undeclared = (
        estimate(
            attack, dataclasses.replace(view, releases=(Release(noise_scale=scale, parameters=tuple(view.deltas)),))
        )
        for scale in (1.0, 0.0)
    )
    assert torch.equal(declared.proportions, undeclared.proportions)
