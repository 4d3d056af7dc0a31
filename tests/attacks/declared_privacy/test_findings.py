"""The level holds for all tests of all checks together."""

import numpy as np
import pytest

from fedleak.attacks.declared_privacy.findings import Findings


def test_the_level_is_shared_by_checks_and_tests() -> None:
    findings = Findings(0.01, ("a", "b"))
    findings.add("a", "w", np.array([0.5, 1e-4, np.nan]), np.arange(3), np.array([1.0, 2.0, 3.0]))
    findings.add("a", "v", np.array([1e-5]), np.array([[0, 2]]))
    assert findings.threshold("a") == pytest.approx(0.01 / 2 / 3)
    assert findings.adjusted("a", "w") == pytest.approx(1e-4 * 6)
    (found,) = findings.found("a", "w")
    assert (found.messages.tolist(), found.measured.tolist()) == ([[1]], [2.0])
    (found,) = findings.found("a", "v")
    assert found.messages.tolist() == [[0, 2]]
    assert np.isnan(findings.adjusted("b", "w"))
    findings.add("a", "v", np.zeros(0), np.zeros((0, 2)), total=997)
    assert list(findings.found("a", "w")) == []


def test_uniform_p_values_are_findings_at_most_at_the_level() -> None:
    generator = np.random.default_rng(0)
    false = 0
    for _ in range(400):
        findings = Findings(0.2, ("a", "b"))
        for check in findings.checks:
            findings.add(check, "w", generator.random(20), np.arange(20))
        false += any(list(findings.found(check, "w")) for check in findings.checks)
    assert 0.12 < false / 400 < 0.24
