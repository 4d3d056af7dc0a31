"""Linear algebra that attacks share: spans keep what is inside, whitening makes noise round, shrinkage is sklearn's."""

import doctest

import pytest
import torch
from sklearn.covariance import ledoit_wolf_shrinkage

from fedleak.attacks import linear_algebra
from fedleak.attacks.linear_algebra import (
    WhiteningOfFew,
    along_and_outside,
    covariance_within,
    in_span,
    ledoit_wolf_of_gram,
    row_space,
    shrunk_eigenvalues,
    triangle,
    whitening,
)
from fedleak.core.seeding import generator_for


def normal(*shape: int, name: str = "numbers") -> torch.Tensor:
    return torch.randn(*shape, generator=generator_for(0, name), dtype=torch.float64)


def test_the_examples_give_their_numbers() -> None:
    failed, tried = doctest.testmod(linear_algebra)
    assert failed == 0
    assert tried > 15


def test_coordinates_in_the_span_keep_products_with_training_vectors() -> None:
    generator = generator_for(0, "span")
    training = torch.randn(5, 70_000, generator=generator, dtype=torch.float64)
    training[4] = training[0] + training[1]  # the rank is four
    others = torch.randn(3, 70_000, generator=generator, dtype=torch.float64)
    few, some = in_span(training, others)
    assert few.shape == (5, 4)
    torch.testing.assert_close(few @ few.T, training @ training.T)
    torch.testing.assert_close(some @ few.T, others @ training.T)


@pytest.mark.parametrize("rows", [3, 40])
def test_the_row_space_is_that_of_all_rows(rows: int) -> None:
    matrix = normal(rows, 2) @ normal(2, 5, name="rows")
    values, basis = row_space(matrix)
    assert triangle(matrix).shape == (min(rows, 5), 5)
    assert int((values > 1e-9).sum()) == 2
    torch.testing.assert_close(values[:2].square().sum(), matrix.square().sum())
    _, outside = along_and_outside(matrix, basis[:2])
    assert float(outside.abs().max()) < 1e-12
    other = normal(1, 5, name="another row")
    along, outside = along_and_outside(other, basis[:2])
    assert float(outside.norm()) > 0.1
    torch.testing.assert_close(along.square().sum() + outside.square().sum(), other.square().sum())


def test_whitened_vectors_have_the_same_spread_in_all_directions() -> None:
    labels = torch.arange(400) % 3
    vectors = normal(400, 4) @ normal(4, 4, name="mixing") + 10 * labels[:, None]
    white = vectors @ whitening(covariance_within(vectors, labels), factor=1.0, added=1e-12)
    torch.testing.assert_close(covariance_within(white, labels), torch.eye(4, dtype=torch.float64))


def test_a_covariance_of_zero_has_no_direction_of_infinite_weight() -> None:
    eigenvalues, _ = shrunk_eigenvalues(torch.zeros(3, 3, dtype=torch.float64), factor=0.5, added=0.5)
    assert bool((eigenvalues > 0).all())


def test_whitening_of_few_errors_is_that_of_their_whole_covariance() -> None:
    errors, values = normal(2, 3, 7), normal(2, 4, 7, name="values")
    whitened = WhiteningOfFew(errors, shrinkage=0.1, floor=0.02, noise=0.3)(values)
    for client in range(2):
        covariance = 0.9 * errors[client].T @ errors[client] / 3
        covariance += (0.02 * covariance.trace() / 7 + 0.3**2) * torch.eye(7, dtype=torch.float64)
        expected = values[client] @ whitening(covariance, factor=1.0, added=0.0)
        torch.testing.assert_close(whitened[client], expected)


@pytest.mark.parametrize("count", [20, 100])
def test_shrinkage_from_inner_products_is_that_of_scikit_learn(count: int) -> None:
    rows = torch.randn(count, 50, generator=generator_for(0, "rows"), dtype=torch.float64) * torch.linspace(0.1, 2, 50)
    expected = ledoit_wolf_shrinkage(rows.numpy(), assume_centered=True)
    assert ledoit_wolf_of_gram(rows @ rows.T, 50) == pytest.approx(expected)
