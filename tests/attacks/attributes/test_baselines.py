"""Evidence of the example counts by hand."""

import math

import pytest
import torch

from fedleak.attacks.attributes.baselines import ExampleCounts
from fedleak.attacks.attributes.estimates import AttributeEstimate
from fedleak.core.history import History
from fedleak.core.view import ATTRIBUTE, ATTRIBUTE_PSEUDONYMS
from tests.attacks.runs import plain_view, run


def test_evidence_of_example_counts_by_hand() -> None:
    counts = torch.tensor([1, 1, 4, 4, 1])  # of the five people, the last one is unknown
    values = {ATTRIBUTE_PSEUDONYMS: torch.arange(4), f"{ATTRIBUTE}colour": torch.tensor([0, 0, 1, 1])}
    view = plain_view(5, example_counts=counts, auxiliary=values)
    found = run(ExampleCounts(), History(**view.common(), sent_in=torch.zeros(5).long()), AttributeEstimate)
    # With L = log 4, all known logarithms have the variance L^2 / 4, those of a value 0. The variance of either value
    # is thus (2 * 0 + L^2 / 4) / 3, and the second value's evidence is lower by L^2 / (2 L^2 / 12) = 6.
    # The first value has the likelihood ratio 1 / (1 / 2 + exp(-6) / 2).
    first = -math.log((1 + math.exp(-6)) / 2)
    assert found.evidence["colour"].tolist() == [pytest.approx([first, first - 6])]
