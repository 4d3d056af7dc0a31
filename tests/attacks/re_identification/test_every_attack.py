"""Attacks on anonymity name leaky devices, fall to chance where users write alike, and refuse what they cannot use."""

import dataclasses
from typing import Any

import pytest
import torch

from fedleak.attacks.matching.same_user import (
    MatchingChance,
    MatchingCounts,
    MatchingFingerprint,
    MatchingMLP,
    MatchingSiamese,
)
from fedleak.attacks.re_identification.baselines import CountsOnly, IdentityChance
from fedleak.attacks.re_identification.estimates import IdentityEstimate
from fedleak.attacks.re_identification.fingerprint import FingerprintAttack, over_pseudonyms
from fedleak.attacks.re_identification.messages import layer_vectors
from fedleak.attacks.re_identification.plda import PLDA
from fedleak.attacks.re_identification.profile_contrast import ProfileContrast, ProfileWords
from fedleak.attacks.re_identification.reidentification import CentredSVM, ReidKNN, ReidMLP, ReidSVM, against_others
from fedleak.attacks.re_identification.word_counts import WordCounts, estimated_words, word_laws
from fedleak.core.attack import Attack
from fedleak.core.errors import ViewError
from fedleak.core.estimates import EstimateError
from fedleak.core.history import History
from fedleak.core.seeding import generator_for
from fedleak.core.view import HOLDOUT, USERS
from fedleak.evaluation.message_selection import MessageSelection, selected
from tests.attacks.runs import plain_view, run, with_deltas, with_noise
from tests.deanonymization_toys import NETWORK, WRITERS, joined, shuffled, source
from tests.toys import each

NAMING: list[Attack] = [
    *(ReidSVM(), ReidKNN(neighbours=4), ReidMLP(epochs=60, accelerator="cpu"), CentredSVM()),
    *(FingerprintAttack(rounds=2, parts=3), FingerprintAttack(rounds=2, parts=3, linked=True)),
    *(PLDA(rounds=2, parts=3), PLDA(rounds=2, parts=3, linked=True), WordCounts(), WordCounts(linked=True)),
    *(ReidSVM(simulated=1), ReidSVM(linked=True), ReidMLP(epochs=60, accelerator="cpu", linked=True)),
]
MATCHING: list[Attack] = [
    MatchingMLP(epochs=40, accelerator="cpu"),
    MatchingSiamese(steps=75, accelerator="cpu"),
    *(MatchingFingerprint(rounds=2, parts=3), MatchingFingerprint(rounds=2, parts=3, linked=True)),
]
EVERY = [*NAMING, *MATCHING]


def named(attack: Attack, view: History, truth: torch.Tensor) -> dict[str, float]:
    """Mean over users of each metric."""
    estimate = attack(view, generator=generator_for(0, attack.name))
    scores = estimate.score(view, {"user": truth[: view.victims], "known_user": truth[view.victims :]})
    return {name: float(values.mean()) for name, values in scores.metrics.items()}


@pytest.mark.integration
@pytest.mark.parametrize("attack", each(NAMING))
def test_names_leaky_devices_and_falls_to_chance_where_users_write_alike(attack: Attack) -> None:
    found, blind = (named(attack, *joined(habit=habit)) for habit in (0.8, 0.0))
    assert found["times-chance"] > 6
    assert found["top5"] > 0.6
    # A name that fits by chance fits all messages of a device: in a random order of 20 devices, 1 + 1/2 + ... + 1/20.
    assert blind["times-chance"] < (4.5 if getattr(attack, "linked", False) else 3)
    assert blind["top5"] < 2 * 5 / WRITERS


@pytest.mark.integration
def test_ours_names_better_than_the_published_machine() -> None:
    view, truth = joined()
    attacks = (ReidSVM(), WordCounts(), WordCounts(linked=True))
    published, single, linked = (named(attack, view, truth)["ap"] for attack in attacks)
    assert published + 0.03 < single < linked


@pytest.mark.parametrize("attack", each([ReidSVM(), FingerprintAttack(parts=3), PLDA(parts=3), WordCounts()]))
def test_another_devices_update_names_another_device(attack: Attack) -> None:
    view, truth = joined()
    owners = truth[: view.victims]
    order = owners.argsort(stable=True).roll(view.victims // 2)[owners.argsort(stable=True).argsort()]
    moved = {name: value[order] for name, value in view.deltas.items()}
    exchanged = dataclasses.replace(view, deltas=moved, example_counts=view.example_counts[order])
    assert named(attack, exchanged, truth)["top1"] < 0.15


@pytest.mark.parametrize("scale", [0.01, 0.03, 0.1])
def test_declared_noise_costs_ours_less_than_the_published_machine(scale: float) -> None:
    view, truth = joined()
    noisy = with_noise(view, scale)
    attacks = (ReidSVM(), ReidSVM(noisy_copies=4), PLDA(parts=3), WordCounts())
    published, adaptive, plda, words = (named(attack, noisy, truth)["ap"] for attack in attacks)
    assert min(plda, words) > max(published, adaptive) - 0.02


def test_equal_numbers_of_examples_name_devices_and_unequal_ones_hardly() -> None:
    view, truth = joined()
    assert view.known is not None
    sizes = torch.randperm(WRITERS, generator=generator_for(0, "sizes")) + 10
    own, known = truth[: view.victims], truth[view.victims :]
    equal = dataclasses.replace(
        view, example_counts=sizes[own], known=dataclasses.replace(view.known, example_counts=sizes[known])
    )
    assert named(CountsOnly(), equal, truth)["top1"] == 1
    assert named(CountsOnly(), view, truth)["top1"] < 0.3
    assert named(MatchingCounts(), equal, truth)["ap"] > 0.95
    assert named(MatchingCounts(), view, truth)["times-chance"] < 1.3


def test_word_frequencies_are_those_of_the_device() -> None:
    view, truth = joined()
    data = source()
    laws = word_laws(view)
    found, _ = estimated_words(view, laws)
    device = next(client for client in range(data.num_clients) if int(data.client_users[client]) == int(truth[0]))
    words = data.examples.features[data.client_examples()[device]][:, 1:]
    own = words[words > 0].bincount(minlength=NETWORK.vocabulary).double()
    correlation = torch.corrcoef(torch.stack([own / own.sum() - laws.base, found.frequencies[0] - laws.base]))[0, 1]
    assert correlation > 0.8


def test_standardised_by_what_others_get_as_by_hand() -> None:
    cohort = torch.tensor([[9.0, 1.0], [2.0, 9.0], [4.0, 9.0]])
    found = against_others(torch.tensor([[6.0, 3.0]]), cohort, torch.tensor([0, 1, 1]), torch.tensor([0.0, 4.0]))
    assert found.tolist() == [[3.0, 1.0]]


def test_profiles_are_contrasted_with_what_is_of_no_kind() -> None:
    view, truth = joined()
    assert view.known is not None
    with pytest.raises(ViewError, match="hold-out"):
        ProfileWords()(view, generator=generator_for(0, "profile"))
    held = view.known.priors[USERS] >= 10
    known = dataclasses.replace(view.known, priors={**view.known.priors, HOLDOUT: held})
    for attack in (ProfileContrast(), ProfileWords()):
        estimate = run(attack, dataclasses.replace(view, known=known), IdentityEstimate)
        assert estimate.users.tolist() == list(range(10))
        assert float(estimate.score(view, {"user": truth[: view.victims]}).metrics["times-chance"].mean()) > 6


def test_guessing_is_at_chance() -> None:
    view, truth = joined()
    assert named(IdentityChance(), view, truth)["times-random"] == pytest.approx(1, abs=0.25)
    assert named(MatchingChance(), view, truth)["times-chance"] == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(
    "kind", [ReidSVM, ReidKNN, ReidMLP, CentredSVM, FingerprintAttack, MatchingMLP, MatchingSiamese]
)
def test_a_layer_that_was_not_recorded_is_answered_with_those_that_were(kind: type[Attack]) -> None:
    view, _ = joined(rounds=3)
    with pytest.raises(ViewError, match="embedding"):
        kind(layers=["embedding"])(view, generator=generator_for(0, "layer"))  # type: ignore[call-arg]


def test_layers_are_flattened_and_rows_put_where_they_belong() -> None:
    view = plain_view(
        2,
        deltas={"table": torch.tensor([[[1.0], [2.0]], [[3.0], [0.0]]]), "lstm.weight": torch.full((2, 1, 2), 9.0)},
        model={"table": torch.zeros(4, 1), "lstm.weight": torch.zeros(1, 2)},
        row_parameters=frozenset(["table"]),
        served=torch.tensor([[1, 3], [0, -1]]),
    )
    assert layer_vectors(view, ["lstm"]).tolist() == [[9, 9], [9, 9]]
    assert layer_vectors(view, ["table"]).tolist() == [[0, 1, 0, 2], [3, 0, 0, 0]]
    assert layer_vectors(view, None).shape == (2, 6)
    assert layer_vectors(view, ["lstm.weight"]).shape == (2, 2)


def test_evidence_under_one_pseudonym_is_summed() -> None:
    single = torch.tensor([[0.6, 0.4], [0.5, 0.5], [0.9, 0.1]], dtype=torch.float64)
    together = over_pseudonyms(single.log(), torch.tensor([7, 8, 7]))
    expected = 0.6 * 0.9 / (0.6 * 0.9 + 0.4 * 0.1)
    assert together[:, 0].tolist() == pytest.approx([expected, 0.5, expected])


def test_the_hold_out_becomes_one_class_of_strangers() -> None:
    view, truth = joined()
    assert view.known is not None
    held = view.known.priors[USERS] >= 12
    known = dataclasses.replace(view.known, priors={**view.known.priors, HOLDOUT: held})
    for attack in (ReidSVM(), FingerprintAttack(rounds=2, parts=3)):
        estimate = run(attack, dataclasses.replace(view, known=known), IdentityEstimate)
        assert estimate.users.tolist() == [-1, *range(12)]
        scores = estimate.score(view, {"user": truth[: view.victims]})
        assert scores.positives is not None
        assert int(scores.positives.sum()) == view.victims
        assert float(scores.metrics["ap"][scores.units == -1]) > 0.6


def test_owners_are_those_that_the_server_wrote_down() -> None:
    view, truth = joined()
    parts = {"user": truth[: view.victims], "known_user": truth[view.victims :]}
    right, moved = (selected(one, parts, MessageSelection(), seed=0)[0] for one in (view, shuffled(view, 1)))
    assert named(ReidSVM(), right, truth)["times-chance"] > 6
    assert named(ReidSVM(), moved, truth)["times-chance"] < 4


@pytest.mark.parametrize("attack", each(EVERY))
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_deltas_that_say_nothing_are_refused(attack: Attack, value: float) -> None:
    view, _ = joined()
    assert view.known is not None
    known = with_deltas(view.known, lambda delta: torch.full_like(delta, value))
    empty = dataclasses.replace(with_deltas(view, lambda delta: torch.full_like(delta, value)), known=known)
    with pytest.raises(ViewError, match="differ"):
        attack(empty, generator=generator_for(0, attack.name))


@pytest.mark.parametrize("attack", each(NAMING))
def test_one_known_user_is_refused(attack: Attack) -> None:
    view, _ = joined()
    assert view.known is not None
    priors = {USERS: torch.zeros_like(view.known.priors[USERS])}
    alone = {**view.auxiliary, "prior_users": torch.zeros_like(view.auxiliary["prior_users"])}
    known = dataclasses.replace(view.known, priors=priors)
    with pytest.raises(ViewError, match="known"):
        attack(dataclasses.replace(view, known=known, auxiliary=alone), generator=generator_for(0, attack.name))


@pytest.mark.parametrize(
    ("attack", "change", "word"),
    [
        (ReidSVM(), {"known": None}, "known"),
        (MatchingChance(), {"pairs": torch.tensor([[0, 10**6]])}, "pairs"),
        (FingerprintAttack(parts=1000), {}, "1000 examples"),
    ],
)
def test_a_view_that_does_not_suffice_is_refused(attack: Attack, change: dict[str, Any], word: str) -> None:
    view, _ = joined(rounds=3)
    with pytest.raises(ViewError, match=word):
        run(attack, dataclasses.replace(view, **change), IdentityEstimate)


@pytest.mark.parametrize(
    ("scores", "users", "word"),
    [
        (torch.zeros(1, 2), torch.arange(2), "shape"),
        (torch.full((2, 2), torch.nan), torch.arange(2), "finite"),
        (torch.zeros(2, 2), torch.zeros(2), "once"),
    ],
)
def test_an_estimate_of_another_shape_is_a_defect(scores: torch.Tensor, users: torch.Tensor, word: str) -> None:
    with pytest.raises(EstimateError, match=word):
        IdentityEstimate(scores=scores, users=users).check(plain_view(2))
