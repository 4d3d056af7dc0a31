"""Estimates say what is inferred."""

import math

import pytest
import torch

from fedleak.attacks.composition.one_output import PositiveShare
from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.core.errors import InputError
from fedleak.core.estimates import Estimate, EstimateError, check_tensor
from tests.attacks.runs import plain_view


def test_an_estimate_says_what_is_inferred() -> None:
    with pytest.raises(InputError, match=r"inferred in .*\.Silent"):
        type("Silent", (Estimate,), {"truth": (), "metrics": (), "check": len, "score": len})
    finer = type("Finer", (InteractionEstimate,), {})
    assert finer.inferred == InteractionEstimate.inferred  # type: ignore[attr-defined]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_refused_unless_it_says_that_there_is_none(number: float) -> None:
    numbers = torch.tensor([0.5, number], dtype=torch.float64)
    for dtype in (None, torch.float64):
        with pytest.raises(EstimateError, match="finite"):
            check_tensor("shares", numbers, (2,), dtype=dtype)
        check_tensor("shares", numbers, (2,), dtype=dtype, finite=False)


def test_an_estimate_with_a_required_type_may_not_be_nan() -> None:
    shares = torch.full((1,), torch.nan, dtype=torch.float64)
    with pytest.raises(EstimateError, match="finite"):
        PositiveShare(shares=shares).check(plain_view(1))
