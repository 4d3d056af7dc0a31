"""Least squares without negative weights."""

import pytest
import torch
from torch import Tensor

from fedleak.attacks.reconstruction import nonnegative_least_squares as module
from fedleak.attacks.reconstruction.nonnegative_least_squares import nonnegative_least_squares
from fedleak.core.seeding import generator_for


def test_least_squares_ends_after_a_number_of_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = torch.randn(200, 60, generator=generator_for(0, "vectors")).double()
    target = torch.randn(60, generator=generator_for(1, "target")).double()

    def chosen_of() -> Tensor:
        return nonnegative_least_squares(
            lambda chosen: vectors @ vectors[chosen].T,
            vectors @ target,
            vectors.square().sum(1),
            floor=1e-9,
            is_enough=lambda *_: False,
        )[0]

    complete = len(chosen_of())
    monkeypatch.setattr(module, "_MOST_WORK", 1000)
    assert 0 < len(chosen_of()) < complete
