"""Every check by the name under which its results are written."""

from defenses.manipulation_checks.base import Check
from defenses.manipulation_checks.constant_columns import ConstantColumns
from defenses.manipulation_checks.correlation import Correlation
from defenses.manipulation_checks.distribution import Distribution
from defenses.manipulation_checks.entropy import Entropy
from defenses.manipulation_checks.equal_scores import EqualScores
from defenses.manipulation_checks.value_range import ValueRange

CHECKS: dict[str, type[Check]] = {
    check.name: check for check in (ConstantColumns, Entropy, Distribution, ValueRange, EqualScores, Correlation)
}
