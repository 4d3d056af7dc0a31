import math

import pandas as pd
import pytest

from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import AttackInfo, concat, score_table
from fedleak.evaluation.summary import summarise
from fedleak.reports.statement.measured import DECLARED_PRIVACY
from fedleak.reports.statement.privacy import BOUNDS, privacy
from fedleak.reports.statement.privacy_content import Privacy
from fedleak.reports.statement.system_file import Declaration, Promise
from tests.places import FILLED_SYSTEM
from tests.wording import lacking

QUESTIONS = ("recommendation", "composition")
RELEASE = {"clip": 1.0, "noise_scale": 0.1, "parameters": ["w"]}
PROMISE = Promise(value=8.0, delta=1e-5, unit="client")


COIN_GUESS = AttackInfo(role="baseline", family=DECLARED_PRIVACY)


def bound_rows(values: dict[str, list[float]], *, rounds: int = 1) -> pd.DataFrame:
    """The table of canaries with some bounds."""
    rows = [
        {"bound": name, "epsilon at least": bound[0], "delta": 1e-5, "rounds": rounds, "canaries": 200}
        for name, bound in values.items()
        if name.startswith("epsilon-") and name != "epsilon-declared"
    ]
    counts = {"hits": 99, "positives": 100, "alarms": 1, "negatives": 100, "right": 150, "guesses": 160}
    return pd.DataFrame([{**row, **counts} for row in rows])


def made(
    values: dict[str, list[float]],
    promise: Promise | None,
    releases: list[dict[str, object]],
    *,
    rounds: int = 1,
    guesses: dict[str, list[float]] | None = None,
    checks: list[dict[str, object]] | None = None,
) -> Privacy:
    lines = {name: AttackInfo(role="ours", family=DECLARED_PRIVACY) for name in ("release-check", "canary-bounds")}
    evaluation = Evaluation(lines={**lines, "coin-guess": COIN_GUESS})
    row = {"check": "epsilon", "measured": 30.0, "delta": 1e-5, "messages": rounds}
    evaluation.details = {
        "release-check": pd.DataFrame(checks or [row]),
        "canary-bounds": bound_rows(values, rounds=rounds),
    }
    own = {
        "release-check": {name: value for name, value in values.items() if name in ("epsilon", "epsilon-declared")},
        "canary-bounds": {name: value for name, value in values.items() if name.startswith("epsilon-")},
        "coin-guess": guesses or {},
    }
    own["canary-bounds"].pop("epsilon-declared", None)
    tables = [
        score_table(label, metrics, setting={"data": "d"}, seed=0, victims=[0, 1])
        for label, metrics in own.items()
        if metrics
    ]
    if tables:
        evaluation.scores = concat(tables)
    system = Declaration.read(FILLED_SYSTEM, QUESTIONS).system.model_copy(update={"epsilon": promise})
    return privacy(summarise(evaluation), evaluation, system, releases)


def status(found: Privacy) -> dict[str, str]:
    return {one.item: one.status for one in found.pyramid}


def test_what_was_not_looked_at_is_said() -> None:
    found = made({}, PROMISE, [RELEASE])
    assert (found.as_sent, found.recorded, found.lower_bounds) == (None, None, [])
    assert "epsilon 8 with delta 0.00001, per client, over the whole training" in found.sentence
    assert "whether the noise was really sent was not looked at" in found.sentence
    assert status(found)["correctness of the mechanism"] == "not looked at"
    assert status(found)["epsilon and delta"] == "declared"


def test_no_declaration_is_no_claim() -> None:
    found = made({}, None, [])
    assert not lacking(found.sentence, "controller declares none", "recording declares no clipping and no noise")
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
    assert "as sent, it is epsilon 30 for the worst client" in found.sentence
    assert found.findings == [{"check": "epsilon", "measured": 30.0, "delta": 1e-5, "messages": 1}]
    assert {status(found)[name] for name in ("epsilon and delta", "attacks on the mechanism")} == {"checked"}


def test_composition_over_rounds_is_that_of_the_ledger() -> None:
    rows = [
        {"check": "epsilon", "measured": 30.0, "delta": 1e-5, "messages": 4.0},
        {"check": "ledger: worst client", "declared": 21.5, "delta": 1e-5, "messages": 4.0},
        {"check": "ledger: median client", "declared": math.nan, "delta": 1e-5, "messages": 2.0},
    ]
    found = made({"epsilon": [30.0, 20.0]}, PROMISE, [RELEASE], checks=rows)
    (line,) = [one for one in found.pyramid if one.item == "composition over rounds"]
    assert line.status == "checked"
    assert "worst client: epsilon 21.5 at the declared noise, over 4 rounds" in line.note
    assert "median client: epsilon infinite" in line.note
    assert "amplifies nothing" in line.note
    assert status(made({"epsilon": [30.0]}, PROMISE, [RELEASE]))["composition over rounds"] == "declared"


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


def test_bound_is_compared_at_the_delta_of_the_declaration() -> None:
    """A mechanism with mu = 1.666 is (8, 1e-5)- and (4.65, 1e-2)-private: 4.7 at 1e-2 is true."""
    found = made({"epsilon-gdp": [6.7, 6.7]}, Promise(value=4.7, delta=1e-2, unit="client"), [RELEASE])
    assert found.lower_bounds[0].at_declared == pytest.approx(3.79, abs=0.01)
    assert found.lower_bounds[0].refutes is False
    assert "does not refute" in found.sentence
    refuted = made({"epsilon-gdp": [6.7, 6.7]}, Promise(value=3.7, delta=1e-2, unit="client"), [RELEASE])
    assert refuted.lower_bounds[0].refutes is True


def test_bound_over_more_rounds_is_scaled_or_does_not_compare() -> None:
    """Epsilon 8 in each of ten rounds is 35.6 in all: a bound of 30 over ten rounds says nothing against 8 a round."""
    promise = Promise(value=8.0, delta=1e-5, unit="client", rounds=1)
    values = {"epsilon": [35.6, 35.6], "epsilon-gdp": [30.0, 30.0], "epsilon-cp": [9.0, 9.0]}
    found = made(values, promise, [RELEASE], rounds=10)
    assert found.lower_bounds[0].at_declared == pytest.approx(6.9, abs=0.01)
    assert [one.refutes for one in found.lower_bounds] == [False, None]
    assert found.as_sent is not None
    assert found.as_sent.at_declared == pytest.approx(8.0, abs=0.02)
    only = made({"epsilon-cp": [9.0, 9.0]}, promise, [RELEASE], rounds=10)
    assert only.lower_bounds[0].refutes is None
    assert "another number of rounds" in only.lower_bounds[0].note
    assert "does not compare" in only.sentence
    fewer = made({"epsilon-gdp": [9.0, 9.0]}, promise.model_copy(update={"rounds": 20}), [RELEASE], rounds=10)
    assert fewer.lower_bounds[0].refutes is True


def test_pure_privacy_is_refuted_by_no_gaussian_bound() -> None:
    values = {"epsilon-gdp": [9.0, 9.0], "epsilon-cp": [3.0, 3.0], "epsilon-one-run": [1.0, 1.0]}
    found = made(values, Promise(value=8.0, delta=0.0, unit="client"), [RELEASE])
    assert [(one.metric, one.role, one.refutes) for one in found.lower_bounds] == [
        ("epsilon-cp", "bound", False),
        ("epsilon-gdp", "check", None),
        ("epsilon-one-run", "check", None),
    ]


def test_largest_of_several_bounds_decides_nothing() -> None:
    values = {"epsilon-gdp": [7.0, 7.0], "epsilon-cp": [9.0, 9.0], "epsilon-one-run-fdp": [10.0, 10.0]}
    found = made(values, PROMISE, [RELEASE])
    assert [(one.metric, one.refutes) for one in found.lower_bounds] == [
        ("epsilon-gdp", False),
        ("epsilon-cp", None),
        ("epsilon-one-run-fdp", None),
    ]
    assert "is 7 with" in found.sentence
    assert "does not refute" in found.sentence


def test_baseline_is_no_bound() -> None:
    found = made({"epsilon-gdp": [6.7, 6.7]}, PROMISE, [RELEASE], guesses={"epsilon-gdp": [0.0, 0.0]})
    assert [one.value for one in found.lower_bounds] == [6.7]


def test_what_a_bound_relies_on_is_said_in_words() -> None:
    for name in BOUNDS:
        sentence = made({name: [9.0, 9.0]}, PROMISE, [RELEASE]).sentence
        assert "the lower bound from" in sentence
        assert name not in sentence
