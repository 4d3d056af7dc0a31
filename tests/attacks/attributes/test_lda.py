"""The discriminant: whitening, the choice of its penalties on people left out, and the weights of several."""

import numpy as np
import torch

from fedleak.attacks.attributes.lda import Discriminant, _whitening, in_span_of_known, stacked_weights
from fedleak.core.seeding import generator_for


def test_coordinates_keep_the_inner_products_with_known_people() -> None:
    vectors = torch.randn(12, 40, generator=generator_for(0, "vectors"), dtype=torch.float64)
    known = torch.tensor([1, 4, 5, 9])
    coordinates = in_span_of_known(vectors @ vectors.T, known)
    assert coordinates.shape == (12, 4)
    assert np.allclose(coordinates @ coordinates[known.numpy()].T, (vectors @ vectors[known].T).numpy())


def test_whitening_makes_the_spread_within_the_values_round() -> None:
    random = np.random.default_rng(0)
    labels = random.integers(3, size=400)
    own = random.normal(size=(400, 5)) * [10, 1, 1, 0.1, 3] + labels[:, None] * [1, 2, 3, 4, 5]
    white = own @ _whitening(own, labels, 1e-9)
    rest = white - np.array([white[labels == value].mean(0) for value in range(3)])[labels]
    assert np.allclose(rest.T @ rest / 400, np.eye(5), atol=1e-6)
    plain = _whitening(own, labels, 1.0)
    assert np.allclose(plain, plain[0, 0] * np.eye(5))


def test_a_known_person_is_judged_by_a_classifier_without_it() -> None:
    generator = generator_for(0, "noise")
    vectors = torch.randn(80, 200, generator=generator, dtype=torch.float64)  # so many numbers that all is separable
    values = torch.randint(2, (80,), generator=generator)
    machine = Discriminant(penalties=(1.0,), shrinkages=(1.0,))
    everyone = torch.arange(80)
    of_all, left_out = machine.evidence(vectors @ vectors.T, everyone, values, 2, seed=0)
    assert float((of_all.argmax(1) == values).double().mean()) == 1
    assert abs(float((left_out.argmax(1) == values).double().mean()) - 0.5) < 0.15


def test_values_of_one_person_and_two_people_do_not_stop_it() -> None:
    vectors = torch.randn(9, 4, generator=generator_for(2, "few"), dtype=torch.float64)
    inner = vectors @ vectors.T
    for values in ([0, 1, 2, 0, 0, 1], [0, 3], [1, 1, 1, 0]):
        known = torch.arange(len(values))
        of_all, left_out = Discriminant().evidence(inner, known, torch.tensor(values), 4, seed=0)
        assert of_all.shape == (9, 4)
        assert left_out.shape == (len(values), 4)
        assert bool(of_all.isfinite().all())
        assert bool(left_out.isfinite().all())


def test_a_layer_that_does_not_move_says_nothing() -> None:
    found = Discriminant().evidence(torch.zeros(12, 12).double(), torch.arange(6), torch.arange(6) % 2, 2, seed=0)
    assert [bool(part.eq(0).all()) for part in found] == [True, True]


def test_among_equals_the_strongest_shrinkage_and_penalty_are_chosen() -> None:
    vectors = torch.randn(6, 4, generator=generator_for(3, "equal"), dtype=torch.float64)
    # Each fold trains on one person of each value, or of one value: nothing is known of the spread within a value.
    arguments = vectors @ vectors.T, torch.arange(3), torch.tensor([0, 0, 1]), 2
    expected = Discriminant(shrinkages=(1.0,), penalties=(1e-5,)).evidence(*arguments, seed=0)
    found = Discriminant().evidence(*arguments, seed=0)
    assert not bool(found[1].any())
    assert bool(found[0].any())
    assert torch.equal(found[0], expected[0])


def test_evidence_that_is_wrong_is_given_no_weight() -> None:
    generator = generator_for(0, "stack")
    values = torch.randint(2, (300,), generator=generator)
    right = 2 * torch.nn.functional.one_hot(values, 2).double() + torch.randn(300, 2, generator=generator)
    noise = 3 * torch.randn(300, 2, generator=generator).double()
    weights = stacked_weights(torch.stack([right, noise, -right]), values)
    assert float(weights[0]) > 0.5
    assert float(weights[1]) < 0.1
    assert float(weights[2]) == 0
