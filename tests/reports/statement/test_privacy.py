import pandas as pd
import pytest

from evaluation.runner import Evaluation
from evaluation.scores import Line, score_table
from evaluation.summary import summarise
from reports.statement.measured import DECLARED_PRIVACY
from reports.statement.privacy import Privacy, privacy
from reports.statement.system_file import Declaration, Promise
from tests.places import ROOT

EXAMPLE, QUESTIONS = ROOT / "docs" / "system-example.yaml", ("recommendation", "composition")
RELEASE = {"clip": 1.0, "noise_scale": 0.1, "parameters": ["w"]}
PROMISE = Promise(value=8.0, delta=1e-5, unit="client")


def made(values: dict[str, list[float]], promise: Promise | None, releases: list[dict[str, object]]) -> Privacy:
    evaluation = Evaluation(lines={"release-check": Line(role="ours", family=DECLARED_PRIVACY)})
    evaluation.details = {"release-check": pd.DataFrame([{"check": "scale", "measured": 0.05}])}
    if values:
        evaluation.scores = score_table("release-check", values, setting={"data": "d"}, seed=0, victims=[0, 1])
    system = Declaration.read(EXAMPLE, QUESTIONS).system.model_copy(update={"epsilon": promise})
    return privacy(summarise(evaluation), evaluation, system, releases)


def status(found: Privacy) -> dict[str, str]:
    return {one.item: one.status for one in found.pyramid}


def test_what_was_not_looked_at_is_said() -> None:
    found = made({}, PROMISE, [RELEASE])
    assert (found.as_sent, found.recorded, found.lower_bounds) == (None, None, [])
    assert "epsilon 8 with delta 1e-05, per client, over the whole training" in found.sentence
    assert "whether the noise was really sent was not looked at" in found.sentence
    assert status(found)["correctness of the mechanism"] == "not looked at"
    assert status(found)["epsilon and delta"] == "declared"


def test_no_declaration_is_no_claim() -> None:
    found = made({}, None, [])
    assert found.sentence == (
        "Differential privacy: the controller declares none; the recording declares no clipping and no noise."
    )
    assert status(found)["epsilon and delta"] == "not looked at"


@pytest.mark.parametrize(("bound", "refutes", "word"), [(9.0, True, "refutes"), (3.0, False, "does not refute")])
def test_declared_as_sent_and_bounds_stand_side_by_side(bound: float, refutes: bool, word: str) -> None:
    values = {"epsilon": [20.0, 30.0], "epsilon-declared": [8.0, 8.0], "epsilon-gdp": [bound, bound]}
    found = made(values, PROMISE, [RELEASE])
    assert found.as_sent is not None
    assert (found.as_sent.mean.value, found.as_sent.worst, found.as_sent.n) == (25, 30, 2)
    assert found.recorded is not None
    assert found.recorded.worst == 8
    assert [(one.metric, one.value, one.refutes) for one in found.lower_bounds] == [("epsilon-gdp", bound, refutes)]
    assert word in found.sentence
    assert "as sent, the worst client has epsilon 30.000" in found.sentence
    assert found.findings == [{"check": "scale", "measured": 0.05}]
    assert {status(found)[name] for name in ("epsilon and delta", "attacks on the mechanism")} == {"checked"}


def test_another_unit_does_not_compare() -> None:
    found = made(
        {"epsilon": [20.0, float("inf")], "epsilon-gdp": [9.0, 9.0]},
        Promise(**{**PROMISE.model_dump(), "unit": "record"}),
        [RELEASE],
    )
    assert found.lower_bounds[0].refutes is None
    assert found.as_sent is not None
    assert found.as_sent.worst == "infinite"
    assert "does not compare" in found.sentence
