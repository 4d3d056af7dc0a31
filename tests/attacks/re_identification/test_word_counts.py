"""Two measurements of the bias under noise, by hand."""

import pytest
import torch

from fedleak.attacks.re_identification.word_counts import BIAS, WEIGHT, _bias_changes
from fedleak.core.history import History
from fedleak.core.release import Release
from tests.attacks.runs import plain_view


def history(bias: list[float], weight: list[float]) -> History:
    """One message: the changes of the bias, and of each row of the weight in hidden states of (3, 4)."""
    deltas = {BIAS: torch.tensor([bias]), WEIGHT: torch.tensor([weight])[..., None] * torch.tensor([3.0, 4.0])}
    releases = (Release(noise_scale=0.1, parameters=(BIAS,)), Release(noise_scale=0.5, parameters=(WEIGHT,)))
    view = plain_view(1, deltas=deltas, releases=releases)
    return History(**view.common(), sent_in=torch.zeros(1).long())


def test_bias_and_weight_are_combined_by_their_inverse_variances() -> None:
    known = history([1, 0], [1, 0.2])
    # The weight's measurement has the noise 0.5^2 / 5^2, and on the known message the error 0.2^2 / 2: a variance of
    # 0.03, where the bias has 0.01. The combination has 0.01 * 0.03 / (0.01 + 0.03).
    changes, variance = _bias_changes(history([1, 2], [2, 1]), known)
    assert changes.tolist() == [pytest.approx([1.25, 1.75])]
    assert variance == pytest.approx(0.0075)
