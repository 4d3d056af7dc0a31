import numpy as np
import pytest

from fedleak.core.errors import InputError
from fedleak.evaluation.limits import limits_of
from fedleak.evaluation.registry import REGISTRY
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import AttackInfo, Role, concat, score_table
from fedleak.evaluation.sequential_gate import SequentialGate, measuring, overall, scores_of_round

ATTACKS = [kind() for kind in REGISTRY.values()]


def round_of(values: dict[str, list[float]], metric: str = "auc", role: Role = "ours", **options: object) -> Evaluation:
    """Scores of the same clients in a round, by attack."""
    lines = {name: AttackInfo(role=role, family="recommendation", tells="what") for name in values}
    tables = [
        score_table(name, {metric: own}, setting={"data": "d"}, seed=0, victims=np.arange(len(own)), **options)  # type: ignore[arg-type]
        for name, own in values.items()
    ]
    return Evaluation(scores=concat(tables), lines=lines)


def gate_after(rounds: list[Evaluation], limit: str, at: float) -> SequentialGate:
    gate = SequentialGate(limits_of({limit: at}), rounds=len(rounds))
    for one in rounds:
        gate.add_round(scores_of_round(one, {limit.rpartition("/")[2]}))
    return gate


@pytest.mark.parametrize(("value", "verdict"), [(0.9, "exceeded"), (0.5, "open"), (0.1, "kept")])
def test_verdict_is_by_the_interval(value: float, verdict: str) -> None:
    (state,) = gate_after([round_of({"one": [value] * 30})], "recommendation/auc", 0.5).states()
    assert state.verdict == verdict
    assert state.low is not None
    assert state.high is not None
    assert state.low <= value <= state.high
    assert state.n == 30


@pytest.mark.parametrize(("value", "verdict"), [(0.1, "exceeded"), (1.9, "kept")])
def test_low_distance_is_a_leak(value: float, verdict: str) -> None:
    (state,) = gate_after([round_of({"one": [value] * 30}, "l1")], "l1", 1.0).states()
    assert state.verdict == verdict
    assert state.value == pytest.approx(value)


def test_exceeded_stays_in_later_rounds_and_names_clients() -> None:
    leak = round_of({"one": [0.99] * 20 + [0.1]})
    (state,) = gate_after([leak, *[round_of({"one": [0.1] * 21})] * 9], "auc", 0.5).states()
    assert state.verdict == "exceeded"
    assert state.clients == ()
    (state,) = gate_after([leak], "auc", 0.5).states()
    assert state.clients == tuple(range(20))


def test_baseline_decides_nothing() -> None:
    (state,) = gate_after([round_of({"one": [0.99] * 30}, role="baseline")], "auc", 0.5).states()
    assert state.verdict == "unmeasured"
    assert overall([state]) == "unknown"


def test_attacks_share_the_probability() -> None:
    def low(attacks: int) -> float:
        rounds = [round_of({str(number): [0.8] * 20 for number in range(attacks)})]
        return gate_after(rounds, "auc", 0.5).states()[0].low or 0.0

    assert low(1) > low(10) > 0.4


def test_attack_that_joins_late_decides_nothing() -> None:
    rounds = [round_of({"one": [0.3] * 30}), round_of({"one": [0.3] * 30, "late": [1.0] * 30})]
    gate = gate_after(rounds, "auc", 0.5)
    assert {*gate.leaks()} == {"auc/one"}
    assert gate.states()[0].verdict == "kept"


def test_attack_that_fails_later_is_no_pass() -> None:
    rounds = [round_of({"one": [0.1] * 30, "two": [0.1] * 30}), round_of({"two": [0.1] * 30})]
    (state,) = gate_after(rounds, "auc", 0.5).states()
    assert (state.verdict, state.attack) == ("unmeasured", "one")
    assert overall([state]) == "unknown"
    assert gate_after([*rounds, rounds[0]], "auc", 0.5).states()[0].verdict == "kept"


def test_clients_without_a_value_leave_a_limit_open() -> None:
    values = [0.1] * 25 + [float("nan")] * 5
    (state,) = gate_after([round_of({"one": values})], "auc", 0.5).states()
    assert state.verdict == "open"
    assert state.n == 25


def test_clients_that_affect_each_other_are_one_number_a_round() -> None:
    rounds = [round_of({"one": [0.9] * 30}, influences={"auc": np.zeros(30)})]
    (state,) = gate_after(rounds, "auc", 0.5).states()
    assert state.n == 1
    assert state.verdict == "open"


@pytest.mark.parametrize("limit", ["epsilon", "change", "beyond-baseline", "bits", "coverage", "nothing"])
def test_limit_without_a_sequence_is_refused(limit: str) -> None:
    with pytest.raises(InputError, match=limit):
        measuring(limits_of({limit: 0.5}), ATTACKS)


def test_only_attacks_that_a_limit_applies_to_are_run() -> None:
    found = measuring(limits_of({"declared-privacy/findings": 0.1}), ATTACKS)
    assert {attack.name for attack in found} == {"release-check"}
    assert not any(attack.baseline for attack in measuring(limits_of({"auc": 0.6}), ATTACKS))
