"""Bounds at the terms of a declaration: those of the same canaries at another delta, and of fewer rounds."""

import dataclasses

import pytest
import torch

from attacks.declared_privacy.bound_conversion import bound_at
from attacks.declared_privacy.canary_bounds import CanaryBounds, CanaryEstimate
from protocol.errors import ViewError
from tests.attacks.declared_privacy.canaries import scored, toy, value


def test_bounds_at_another_delta_are_those_of_an_attack_with_that_delta() -> None:
    view, truth = toy()
    rows = scored(view, truth).details
    estimate = CanaryBounds()(view, generator=torch.Generator().manual_seed(1))
    assert isinstance(estimate, CanaryEstimate)
    other = dataclasses.replace(estimate, delta=1e-2).score(view, truth)  # the same thresholds
    for row in rows:
        name = str(row["bound"])
        assert bound_at(row, 1e-5, None) == pytest.approx(value(scored(view, truth), name), abs=1e-6)
        assert bound_at(row, 1e-2, None) == pytest.approx(value(other, name), rel=1e-6)


def test_a_gaussian_bound_of_fewer_rounds_is_that_of_one_of_them() -> None:
    rows = {str(row["bound"]): row for row in scored(*toy(rounds=4)).details}
    assert rows["epsilon-gdp"]["rounds"] == 4
    assert bound_at(rows["epsilon-gdp"], 1e-5, 1) < 8.6
    assert bound_at(rows["epsilon-gdp"], 1e-5, 5) == pytest.approx(rows["epsilon-gdp"]["epsilon at least"])
    for name in ("epsilon-cp", "epsilon-one-run"):
        with pytest.raises(ViewError, match="rounds"):
            bound_at(rows[name], 1e-5, 1)


def test_pure_privacy_compares_with_counts_only() -> None:
    rows = {str(row["bound"]): row for row in scored(*toy()).details}
    assert bound_at(rows["epsilon-cp"], 0.0, None) > 0
    with pytest.raises(ViewError, match="Gaussian"):
        bound_at(rows["epsilon-gdp"], 0.0, None)
