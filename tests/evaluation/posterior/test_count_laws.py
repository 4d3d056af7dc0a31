"""Laws of class counts: probabilities sum to one, the likeliest kind is found, never worse than equal probabilities."""

import itertools
import math

import numpy as np
import pytest

from fedleak.evaluation.posterior.count_laws import CountLaw, DirichletLaw, HistogramLaw, likeliest_law

CLIENTS = 40
SOME = np.array([[3, 1, 0], [0, 4, 0], [2, 2, 0]])
LAWS: list[CountLaw] = [DirichletLaw(np.array([0.2, 1.0, 3.0])), HistogramLaw.of(SOME, 0.02).pooled(0.5)]


@pytest.mark.parametrize("law", LAWS)
def test_probabilities_of_all_counts_sum_to_one(law: CountLaw) -> None:
    everything = np.array([n for n in itertools.product(range(5), repeat=3) if sum(n) == 4])
    assert np.exp(law.log_probability(everything)).sum() == pytest.approx(1.0)
    np.testing.assert_allclose(law.log_probability(everything), CountLaw.log_probability(law, everything), atol=1e-9)


def mean_bits(counts: np.ndarray) -> float:
    law = likeliest_law(counts, np.arange(len(counts)))
    return -float(law.log_probability(counts).mean()) / math.log(2)


def test_two_equal_classes_of_ten_are_one_of_45_pairs() -> None:
    generator = np.random.default_rng(0)
    counts = np.zeros((CLIENTS, 10), dtype=int)
    for row in counts:
        row[generator.choice(10, 2, replace=False)] = 20
    assert 0.9 * math.log2(45) < mean_bits(counts) <= math.log2(45)


@pytest.mark.parametrize("same", [[4, 4, 4, 4], [30, 10, 0, 0]])
def test_clients_that_are_all_alike_are_known_beforehand(same: list[int]) -> None:
    assert mean_bits(np.tile(same, (CLIENTS, 1))) < 0.05


@pytest.mark.parametrize("examples", [1, 5, 20])
@pytest.mark.parametrize("seed", range(5))
def test_bits_do_not_exceed_the_logarithm_of_the_number_of_counts(examples: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    shares = generator.dirichlet(np.full(3, generator.choice([0.1, 1.0, 30.0])), size=6)
    counts = np.array([generator.multinomial(examples, share) for share in shares])
    assert mean_bits(counts) <= math.log2(math.comb(examples + 2, 2)) + 1e-9
