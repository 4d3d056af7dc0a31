"""A limit on bits does not hold where a question has none."""

from typing import Any

import pytest

from fedleak.attacks.composition.decaf import Decaf
from fedleak.attacks.reconstruction.linear_inversion import LinearInversion
from fedleak.core.attack import Attack
from fedleak.evaluation.gate import Verdict, gate
from fedleak.evaluation.limits import limits_of
from fedleak.evaluation.reasons import Reason
from fedleak.evaluation.runner import Evaluation
from tests.frames import cell, results

ATTACKS: list[Attack] = [Decaf(), LinearInversion()]
SHARES = [cell("decaf", "l1", 0.3), cell("decaf", "bits", 2.7)]
RECORDS = cell("linear-inversion", "recovered", 1.0)


def verdict(limits: dict[str, float], *rows: dict[str, Any]) -> Verdict:
    (found,) = gate(limits_of(limits), ATTACKS)(results(*rows), Evaluation())
    return found


@pytest.mark.parametrize("limit", ["bits", "reconstruction/bits"])
def test_records_without_bits_leave_a_limit_on_bits_unchecked(limit: str) -> None:
    found = verdict({limit: 5.0}, *SHARES, RECORDS)
    assert found.verdict == "unchecked"
    assert "some of its training examples themselves were not measured in bits" in found.message


def test_shares_of_too_few_clients_are_the_reason_and_not_attacks_that_did_not_run() -> None:
    """Shares of ten classes need twenty clients; an attack on records would say nothing of them."""
    missing = Evaluation(missing={"linear-inversion": Reason("slow", way_out="add --slow", says="it is slow")})
    (found,) = gate(limits_of({"bits": 5.0}), ATTACKS)(results(SHARES[0]), missing)
    assert "what share of its examples each class has were not measured in bits, which need" in found.message
    assert "slow" not in found.message


@pytest.mark.parametrize(
    ("limits", "rows", "expected"),
    [
        ({"bits": 5.0}, SHARES, "ok"),
        ({"composition/bits": 5.0}, [*SHARES, RECORDS], "ok"),
        ({"bits": 5.0}, [*SHARES, RECORDS, cell("linear-inversion", "bits", 1.0)], "ok"),
        ({"bits": 1.0}, [*SHARES, RECORDS], "failed"),
        ({"bits": 5.0}, [*SHARES, cell("linear-inversion", "recovered", float("nan"))], "ok"),
        ({"l1": 0.1}, [*SHARES, RECORDS], "ok"),
    ],
)
def test_limits_on_what_has_bits_hold_or_fail_as_before(
    limits: dict[str, float], rows: list[dict[str, Any]], expected: str
) -> None:
    assert verdict(limits, *rows).verdict == expected
