import itertools
import math

import numpy as np
import pytest

from fedleak.evaluation.confidence_sequence import (
    BETS,
    FALSE_STOP,
    FIRST,
    MEANS,
    ROUND,
    SHARES,
    ConfidenceSequence,
    _weights_of_means,
    _weights_of_rounds,
)


def capital(rounds: list[list[tuple[int, float]]], mean: float) -> list[float]:
    """The capital for scores of at least 0 in two expected rounds and more, written out."""

    def mixed(values: list[float]) -> float:
        products = [math.prod(1 + bet * (value / mean - 1) for value in values) for bet in BETS.tolist()]
        return math.fsum(share * product for share, product in zip(SHARES.tolist(), products, strict=True))

    found: list[float] = []
    seen: list[float] = []
    sums: dict[int, list[float]] = {}
    looks = 0.0
    for number, present in enumerate(rounds, start=1):
        for person, value in present:
            if person not in sums:
                seen.append(value)
            sums.setdefault(person, []).append(value)
        means = [sum(own) / len(own) for own in sums.values()]
        looks += MEANS * {1: 0.3, 2: 0.6, 3: 0, 4: 0.05}[number] * mixed(means)
        weight = 0.45 if number <= 2 else 0.2 / (number * (number - 1))
        looks += ROUND * weight * mixed([value for _, value in present])
        found.append(FIRST * mixed(seen) + looks)
    return found


def of(messages: list[list[tuple[int, float]]], **options: int) -> ConfidenceSequence:
    sequence = ConfidenceSequence(0, 1, **options)
    for present in messages:
        sequence.add_round([person for person, _ in present], [value for _, value in present])
    return sequence


def test_capital_is_that_of_the_formula() -> None:
    rounds = [[(0, 0.3), (1, 0.9)], [(1, 0.2), (2, 0.7)], [(0, 1.0), (2, 0.0)], [(1, 0.6), (3, 0.7)]]
    assert of(rounds, rounds=2).evidence(0.4) == pytest.approx(capital(rounds, 0.4))


def test_capital_is_mirrored_below() -> None:
    rounds = [[(0, 0.3), (1, 0.9)], [(1, 0.2), (2, 0.7)]]
    mirrored = [[(person, 1 - value) for person, value in present] for present in rounds]
    assert of(rounds).evidence(0.6, above=False) == pytest.approx(of(mirrored).evidence(0.4))


@pytest.mark.parametrize("persons", [("a", "b"), ("a", "a")], ids=["new persons", "the same person"])
@pytest.mark.parametrize("means", [(0.3, 0.3), (0.1, 0.5)], ids=["alike", "unlike"])
def test_expected_capital_is_at_most_one_at_the_limit(persons: tuple[str, str], means: tuple[float, float]) -> None:
    """Two persons a round with scores of 0 or 1, all outcomes of two rounds; the same persons repeat their scores."""
    expected = 0.0
    same = persons[0] == persons[1]
    for outcome in itertools.product((0, 1), repeat=2 if same else 4):
        pairs = list(zip(outcome, means * 2, strict=False))
        chance = math.prod(mean if value else 1 - mean for value, mean in pairs)
        rounds = [list(enumerate(map(float, outcome[:2])))]
        rounds.append(rounds[0] if same else [(place + 2, float(value)) for place, value in enumerate(outcome[2:])])
        expected += chance * of(rounds, rounds=2).evidence(0.3)[-1]
    assert expected <= 1 + 1e-12
    assert expected > 0.5


def test_weights_of_rounds_sum_to_at_most_one() -> None:
    for expected in (1, 7, 100):
        assert 0.9 < _weights_of_rounds(10**5, expected).sum() <= 1 + 1e-9
        assert 0.99 < _weights_of_means(10**5, expected).sum() <= 1 + 1e-9
    assert SHARES.sum() == pytest.approx(1)
    assert pytest.approx(1) == FIRST + MEANS + ROUND


def test_means_are_looked_at_in_few_rounds_of_which_the_last_expected_one_counts_most() -> None:
    weights = _weights_of_means(50, 20)
    assert (weights.nonzero()[0] + 1).tolist() == [1, 2, 3, 5, 10, 20, 40]
    assert weights.argmax() == 19


def test_messages_of_the_same_persons_are_not_taken_for_new_ones() -> None:
    values = np.random.default_rng(0).beta(6, 4, 20)
    same, new = ConfidenceSequence(), ConfidenceSequence()
    for number in range(50):
        same.add_round(range(20), values)
        new.add_round(range(20 * number, 20 * number + 20), values)
    (low, high), (lower, higher) = same.interval(), new.interval()
    assert low < lower < values.mean() < higher < high


def test_late_fault_is_found_in_its_round() -> None:
    sequence = ConfidenceSequence(0, math.inf)
    for number in range(8):
        sequence.add_round(range(8), np.full(8, float(number == 7)))
        assert sequence.exceeds(0.05) == (number == 7)
    low, high = sequence.interval()
    assert low > 0.05
    assert high == math.inf


def test_ends_agree_with_the_questions_on_them() -> None:
    sequence = ConfidenceSequence()
    for number in range(10):
        sequence.add_round(range(30 * number, 30 * number + 30), np.random.default_rng(number).beta(7, 3, 30))
    low, high = sequence.interval(3)
    assert 0.5 < low < sequence.mean < high < 0.9
    assert sequence.exceeds(low - 1e-4, 3)
    assert not sequence.exceeds(low + 1e-4, 3)
    assert sequence.below(high + 1e-4)
    assert not sequence.below(high - 1e-4)
    assert sequence.interval(1)[0] > low


def test_scores_that_affect_each_other_are_one_number() -> None:
    joint, one = ConfidenceSequence(), ConfidenceSequence()
    joint.add_round([1, 2, 3], [0.2, 0.4, 0.9], joint=True)
    one.add_round(["any"], [0.5])
    assert joint.persons == 1
    assert joint.evidence(0.4) == pytest.approx(one.evidence(0.4))


@pytest.mark.integration
def test_honest_federations_are_rarely_stopped() -> None:
    """At most 5 % of them, whichever persons take part: 300 federations of 30 rounds."""
    stopped = 0
    for seed in range(300):
        draws = np.random.default_rng(seed)
        means = draws.beta(12, 12, 10)
        sequence = ConfidenceSequence(rounds=30)
        for _ in range(30):
            sequence.add_round(range(10), draws.beta(10 * means, 10 * (1 - means)))
        stopped += bool((sequence.evidence(0.5) >= 1 / FALSE_STOP).any())
    assert stopped <= 15


def test_sequence_without_a_round_knows_nothing() -> None:
    sequence = ConfidenceSequence(0, 2)
    assert sequence.interval() == (0, 2)
    assert math.isnan(sequence.mean)
    assert not sequence.exceeds(0.0)
