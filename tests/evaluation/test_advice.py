"""Advice names the defences within all limits, by what they leave, and none without limits."""

import pandas as pd
import pytest

from fedleak.evaluation.advice import NO_LIMITS, advice, outcomes_under_defences
from fedleak.evaluation.gate import Gate, Outcome, Verdict
from fedleak.evaluation.reasons import Reason
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import SETTING
from fedleak.evaluation.what_if import COSINE, LOSS

_COLUMN = SETTING + "defence"
KEPT = {"none": 1.0, "clip": 0.9, "top-k 0.1": 0.5, "bits 2": 0.2}
RESULTS = pd.DataFrame([{"metric": COSINE, "mean": value, _COLUMN: name} for name, value in KEPT.items()])


def evaluation() -> Evaluation:
    return Evaluation(scores=pd.DataFrame({_COLUMN: list(KEPT)}))


def gate(outcomes: dict[str, list[Outcome]]) -> Gate:
    def check(results: pd.DataFrame, own: Evaluation) -> list[Verdict]:
        (name,) = results[_COLUMN].unique()
        assert set(own.scores[_COLUMN]) == {name}
        verdicts = enumerate(outcomes[name])
        return [Verdict(f"limit-{place}", 0.6, None, None, None, None, 9, one, "") for place, one in verdicts]

    return check


def advised(results: pd.DataFrame, audited: Evaluation, check: Gate | None) -> str:
    """The advice where limits are checked under each defence."""
    return advice(results, audited, outcomes_under_defences(results, audited, check))


def test_those_within_all_limits_are_named_by_what_they_leave() -> None:
    said = advised(
        RESULTS,
        evaluation(),
        gate({"none": ["failed"], "clip": ["ok", "failed"], "top-k 0.1": ["ok"], "bits 2": ["ok"]}),
    )
    assert said.startswith("Of 3 defences that were tried on this recording, 2 keep all limits: top-k 0.1 (cosine 0.5")
    assert said.index("top-k 0.1") < said.index("bits 2")
    assert "clip" not in said


def test_the_loss_comes_before_the_cosine_where_it_was_measured() -> None:
    losses = {"none": 1.0, "clip": 3.0, "top-k 0.1": 2.0, "bits 2": 1.5}
    rows = [{"metric": LOSS, "mean": value, _COLUMN: name} for name, value in losses.items()]
    every = pd.concat([RESULTS, pd.DataFrame(rows)])
    said = advised(every, evaluation(), gate({name: ["ok"] for name in KEPT}))
    assert ": bits 2 (auxiliary loss 1.5" in said
    assert said.index("top-k 0.1") < said.index("clip")


@pytest.mark.parametrize(
    ("none", "other", "text"),
    [
        ("failed", "failed", "Try stronger ones"),
        ("ok", "ok", "Without any, all limits"),
        ("failed", "undecided", "Of 3, too few"),
    ],
)
def test_what_else_a_person_needs_to_know_is_said(none: Outcome, other: Outcome, text: str) -> None:
    outcomes: dict[str, list[Outcome]] = {name: [none if name == "none" else other] for name in KEPT}
    assert text in advised(RESULTS, evaluation(), gate(outcomes))


def test_an_attack_that_was_too_slow_is_named() -> None:
    slow = evaluation()
    slow.not_under_defences["decaf-match"] = Reason("under-defences", way_out="give --slow", says="it takes 29 s")
    said = advised(RESULTS, slow, gate({name: ["ok"] for name in KEPT}))
    assert "left out under defences for their time: decaf-match;" in said


def test_without_limits_nothing_is_advised_and_without_defences_nothing_is_said() -> None:
    assert advised(RESULTS, evaluation(), None) == NO_LIMITS
    assert advised(RESULTS[RESULTS["metric"] == "auc"], evaluation(), None) == ""
