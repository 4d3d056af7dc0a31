"""Scores of the share of positives: the correlation of inferred and true shares, and a client's influence on it."""

import pytest
import torch

from fedleak.attacks.composition.one_output import PositiveShare
from tests.attacks.runs import plain_view


def test_the_influences_of_a_correlation_have_it_as_mean_and_its_spread() -> None:
    """Products of two standardised shares lie beyond 1, their mean does not; leaving out a client checks influences."""
    draw = torch.Generator().manual_seed(0)
    true = torch.rand(30, generator=draw, dtype=torch.float64)
    shares = (true + 0.1 * torch.randn(30, generator=draw, dtype=torch.float64)).clamp(0, 1)
    truth = {"class_counts": torch.stack([1 - true, true], 1)}
    scores = PositiveShare(shares=shares).score(plain_view(30), truth)
    products = scores.metrics["share-correlation"]
    influences = scores.influences["share-correlation"]
    correlation = float(torch.corrcoef(torch.stack([shares, true]))[0, 1])
    assert float(products.max()) > 1
    assert float(influences.mean()) == pytest.approx(correlation) == pytest.approx(float(products.mean()))
    left_out = [
        float(torch.corrcoef(torch.stack([shares, true])[:, torch.arange(30) != client])[0, 1]) for client in range(30)
    ]
    jackknife = 30 * correlation - 29 * torch.tensor(left_out).double()
    assert float(torch.corrcoef(torch.stack([influences, jackknife]))[0, 1]) > 0.99
