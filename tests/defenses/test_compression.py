"""Lossy updates by hand, for whole parameters and for rows of a table."""

import pytest
import torch

from fedleak.defenses.base import Update
from fedleak.defenses.compression import Clip, Sign, TopK


def update() -> Update:
    """A whole parameter, and a table of which the first client has two rows and the second one."""
    table = torch.tensor([[[3.0, -4.0], [1.0, 0.0]], [[-2.0, 2.0], [0.0, 0.0]]])
    whole = torch.tensor([[0.5, -0.5], [12.0, 0.0]])
    return Update({"table": table, "whole": whole}, {"table": torch.tensor([[5, 7], [2, -1]])})


def no_generators(_: int) -> torch.Generator:
    raise AssertionError("nothing is drawn")


def test_only_a_longer_update_is_clipped() -> None:
    found = Clip(norm=6.0).protect(update(), no_generators)
    assert torch.equal(found.deltas["table"][0], update().deltas["table"][0])
    norm = (found.deltas["table"][1].square().sum() + found.deltas["whole"][1].square().sum()).sqrt()
    assert float(norm) == pytest.approx(6.0, abs=1e-4)
    assert torch.allclose(found.deltas["whole"][1] / found.deltas["table"][1, 0, 1], torch.tensor([6.0, 0.0]))


def test_the_largest_numbers_of_the_whole_update() -> None:
    """Half of six numbers and half of four."""
    found = TopK(share=0.5).protect(update(), no_generators).deltas
    assert found["table"].tolist() == [[[3, -4], [1, 0]], [[-2, 2], [0, 0]]]
    assert found["whole"].tolist() == [[0, 0], [12, 0]]


def test_signs_keep_the_mean_magnitude() -> None:
    found = Sign().protect(update(), no_generators).deltas
    first, second = 9 / 6, 16 / 4
    assert found["table"].tolist() == [
        [[first, -first], [first, 0]],
        [[-second, second], [0, 0]],
    ]
    assert found["whole"].tolist() == [[first, -first], [second, 0]]
