"""The law of click patterns is the cascade's, and a cascade walked step by step gives the same."""

import itertools

import pytest
import torch

from fedleak.client.click_models import (
    CLICK_MODELS,
    cascade_log_law,
    count_log_law,
    patterns,
    possible,
    sample_patterns,
    steps_for_grades,
    steps_for_law,
    uniform_log_law,
)


def walked(click_model: str, grades: list[int], pattern: tuple[int, ...], num_grades: int) -> float:
    """Probability of a pattern: sums over where the user may have left."""
    click, stop = CLICK_MODELS[click_model, num_grades]
    reached, total = 1.0, 0.0
    for position, clicked in enumerate(pattern):
        p, q = click[grades[position]], stop[grades[position]]
        if not clicked:
            reached *= 1 - p
            continue
        if not any(pattern[position + 1 :]):
            total += reached * p * q
        reached *= p * (1 - q)
    return total + reached


@pytest.mark.parametrize("click_model", ["perfect", "navigational", "informational"])
@pytest.mark.parametrize("num_grades", [3, 5])
def test_law_equals_a_walk_down_the_list(click_model: str, num_grades: int) -> None:
    grades = torch.tensor([[1, 2, 0, num_grades - 1, 0], [0, 1, 1, 0, 0]])
    mask = torch.tensor([[True] * 5, [True, True, True, False, False]])
    law = cascade_log_law(steps_for_grades(click_model, grades, num_grades), mask).exp()
    for row, length in enumerate((5, 3)):
        expected = torch.zeros(32)
        for pattern in itertools.product((0, 1), repeat=length):
            if 0 < sum(pattern) < length:
                code = sum(bit << place for place, bit in enumerate(pattern))
                expected[code] = walked(click_model, grades[row].tolist(), pattern, num_grades)
        torch.testing.assert_close(law[row], expected / expected.sum(), rtol=1e-4, atol=1e-6)


def test_a_list_that_can_send_nothing_has_no_law_and_draws_nothing() -> None:
    grades = torch.tensor([[0, 0, 0], [1, 0, 0]])
    mask = torch.tensor([[True, True, True], [True, False, False]])
    law = cascade_log_law(steps_for_grades("perfect", grades, 3), mask)
    assert bool(torch.isinf(law).all())
    drawn = sample_patterns(law, torch.Generator().manual_seed(0))
    assert float(drawn.sum()) == 0


def test_draws_follow_the_law() -> None:
    law = cascade_log_law(steps_for_grades("informational", torch.tensor([0, 1, 2, 0]), 3), torch.ones(4).bool())
    drawn = sample_patterns(law.expand(20000, -1), torch.Generator().manual_seed(0))
    frequencies = torch.bincount((drawn @ torch.tensor([1.0, 2, 4, 8])).long(), minlength=16) / 20000
    torch.testing.assert_close(frequencies, law.exp(), atol=0.01, rtol=0)


def test_priors_know_no_more_than_they_say() -> None:
    mask = torch.tensor([True, True, True, True, False])
    steps = steps_for_law("navigational", torch.tensor([0.6, 0.3, 0.1]), 5)
    uniform, count, cascade = (
        law.exp() for law in (uniform_log_law(mask), count_log_law(steps, mask), cascade_log_law(steps, mask))
    )
    assert int(possible(mask).sum()) == 2**4 - 2
    torch.testing.assert_close(uniform[possible(mask)], torch.full((14,), 1 / 14))
    clicks = patterns(5).sum(1)
    for number in (1, 2, 3):
        of_that_count = (clicks == number) & possible(mask)
        assert float(count[of_that_count].std()) < 1e-6
        torch.testing.assert_close(count[of_that_count].sum(), cascade[of_that_count].sum())


@pytest.mark.parametrize("click_model", ["perfect", "navigational", "informational"])
def test_with_every_list_sent_the_law_is_the_walks_own(click_model: str) -> None:
    grades = [1, 2, 0, 1]
    mask = torch.tensor([True] * 4)
    law = cascade_log_law(steps_for_grades(click_model, torch.tensor(grades), 3), mask, every=True).exp()
    expected = torch.tensor([walked(click_model, grades, tuple(p), 3) for p in patterns(4).int().tolist()])
    torch.testing.assert_close(law, expected)
    assert float(uniform_log_law(mask, every=True).exp().min()) == 1 / 16
