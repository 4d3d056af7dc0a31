"""What the tests of a round measure, besides the p-values."""

import numpy as np
import pytest
import torch

from fedleak.attacks.declared_privacy.findings import Findings
from fedleak.attacks.declared_privacy.message_tests import CHECKS, MessageTests
from fedleak.attacks.declared_privacy.noised_groups import NoisedGroup
from tests.attacks.runs import plain_view


def checked(x: torch.Tensor, clip: float) -> MessageTests:
    """Tests of messages ``(V, n)`` of one parameter, in units of the declared noise."""
    tests = MessageTests(NoisedGroup(clip, {"w": 1.0}), Findings(alpha=0.01, checks=CHECKS), len(x))
    tests.add_round(plain_view(len(x), deltas={"w": x}, model={"w": torch.ones(x.shape[1])}), torch.arange(len(x)))
    return tests


def test_somewhat_larger_noise_is_measured_and_larger_updates_are_not_taken_for_noise() -> None:
    x = torch.randn(4, 3200, generator=torch.Generator().manual_seed(0))
    update = x.clone()
    update[:, :320] *= 3
    for sent, expected in ((1.2 * x, 1.2), (update, np.nan)):
        found = [one.measured for one in checked(sent, 0.5).findings.found("energy", "w")]
        assert len(found) == 2  # of each message, and of all in a row
        for measured in found:
            assert measured.tolist() == [pytest.approx(expected, rel=0.05, nan_ok=True)] * len(measured)


def test_noise_in_blocks_that_a_dominant_update_leaves_out_is_free_in_the_only_parameter() -> None:
    x = torch.randn(4, 3200, generator=torch.Generator().manual_seed(1))
    assert not checked(x, 0.5).conclusive.free
    x[:, :320] += 1000
    assert checked(x, 20_000).conclusive.free
