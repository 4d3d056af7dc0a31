"""What an attack comes to on one view, and on several."""

import torch

from attacks.estimates import ROC_GRID
from attacks.recommendation.item_deltas import Direction
from evaluation.runner import attack_view, joined
from tests.toys import leaky_view


def test_curves_are_summed_over_victims_and_views() -> None:
    view, labels = leaky_view(victims=4)
    labels[0] = 0  # a client without a curve
    one = attack_view(Direction(), view, {"labels": labels}, seed=0, setting={"data": "d"})
    sums, number = one.roc["direction"]
    assert number == 3
    assert (sums.shape, float(sums[-1])) == (ROC_GRID.shape, 3)
    whole, number = joined([one, one]).roc["direction"]
    assert number == 6
    assert torch.equal(whole, 2 * sums)
