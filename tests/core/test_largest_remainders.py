"""Whole numbers with a given sum: none is further than one from its share, and the sum holds."""

import doctest

import torch

from fedleak.core import largest_remainders as module
from fedleak.core.largest_remainders import largest_remainders
from fedleak.core.seeding import generator_for


def test_the_example_gives_its_numbers() -> None:
    assert doctest.testmod(module) == (0, 2)


def test_sums_hold_and_no_number_is_further_than_one_from_its_share() -> None:
    generator = generator_for(0, "shares")
    shares = torch.rand(50, 9, generator=generator, dtype=torch.float64)
    shares[:, 4] = 0
    shares /= shares.sum(1, keepdim=True)
    totals = torch.randint(1, 400, (50,), generator=generator)
    numbers = largest_remainders(shares, totals)
    assert torch.equal(numbers.sum(1), totals)
    assert float((numbers - shares * totals[:, None]).abs().max()) < 1
    assert not bool(numbers[:, 4].any())
    assert torch.equal(largest_remainders(shares[7], totals[7]), numbers[7])


def test_of_equal_rests_the_first_go_up() -> None:
    assert largest_remainders(torch.full((3,), 1 / 3), torch.tensor(10)).tolist() == [4, 3, 3]
