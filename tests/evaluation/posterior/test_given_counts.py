"""Answers given their counts: as by listing all choices, and nothing beyond the counts where only these are known."""

import itertools
import math

import pytest
import torch

from fedleak.evaluation.posterior.given_counts import log_probability_given_counts

ODDS = torch.tensor([0.3, -1.2, 2.0, 0.0, 0.7, -0.4], dtype=torch.float64)
LABELS = torch.tensor([True, False, True, False, True, False])
KINDS = torch.tensor([0, 0, 0, 1, 1, 1])


def test_probability_is_that_of_a_list_of_all_choices() -> None:
    found = log_probability_given_counts(ODDS, LABELS, torch.zeros(6, dtype=torch.int64), KINDS, values=1)
    expected = 0.0
    for kind in (0, 1):
        own, true = ODDS[kind == KINDS], LABELS[kind == KINDS]
        choices = itertools.combinations(own.tolist(), int(true.sum()))
        expected += float(own[true].sum()) - math.log(sum(math.exp(sum(choice)) for choice in choices))
    assert float(found[0]) == pytest.approx(expected / math.log(2))


def test_values_are_apart_and_equal_odds_give_the_number_of_choices() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.rand(3, 40, generator=generator) < 0.3
    places = torch.arange(3).repeat_interleave(40)
    order = torch.randperm(120, generator=generator)
    kinds = (torch.arange(40) % 4).repeat(3)
    odds = kinds.double() - 1.5  # what is known of a class alone
    rows = (table[order] for table in (odds, labels.flatten(), places, kinds))
    found = log_probability_given_counts(*rows, values=3)
    for value in range(3):
        counts = [int(labels[value, kinds[:40] == kind].sum()) for kind in range(4)]
        expected = -sum(math.log2(math.comb(10, count)) for count in counts)
        assert float(found[value]) == pytest.approx(expected)
