"""Estimates say what is inferred."""

import pytest

from attacks.estimates import Estimate
from attacks.interactions.estimates import InteractionEstimate
from protocol.errors import InputError


def test_an_estimate_says_what_is_inferred() -> None:
    with pytest.raises(InputError, match=r"inferred in .*\.Silent"):
        type("Silent", (Estimate,), {"truth": (), "metrics": (), "check": len, "score": len})
    finer = type("Finer", (InteractionEstimate,), {})
    assert finer.inferred == InteractionEstimate.inferred  # type: ignore[attr-defined]
