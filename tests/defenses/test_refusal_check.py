"""The check of a received item table."""

import pytest
import torch

from defenses.refusal import ProbeCheck
from protocol.seeding import generator_for

CHECK = ProbeCheck()


def table() -> torch.Tensor:
    return torch.randn(200, 8, generator=generator_for(0, "honest-table"))


def test_each_probe_gives_its_reasons() -> None:
    honest = table()
    assert CHECK.reasons(honest) == []
    assert CHECK.reasons(honest + 0.05, honest) == []
    assert CHECK.reasons(torch.zeros(200, 8), honest) == ["zero rows", "low rank", "shrunk", "another model"]
    assert CHECK.reasons(honest[:1].expand(200, -1)) == ["low rank"]
    assert CHECK.reasons(0.01 * honest, honest) == ["shrunk"]
    assert CHECK.reasons(honest.roll(1, dims=0), honest) == ["another model"]
    one_zero = honest.clone()
    one_zero[3] = 0
    assert CHECK.reasons(one_zero, honest) == ["zero rows"]


def test_a_share_beyond_one_is_refused() -> None:
    with pytest.raises(ValueError, match="least_size"):
        ProbeCheck(least_size=1.5)
