"""A gate fails closed: what exceeds a limit fails, what is not measured does not pass, baselines trip nothing."""

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from bench.gate import LAWS, check, shares
from fedleak.attacks.composition.decaf import Decaf
from fedleak.attacks.composition.label_sets import RLG
from fedleak.attacks.composition.output_mean import OutputShare
from fedleak.attacks.images.affine_inversion import AffineInversion
from fedleak.attacks.ranking.list_posterior import ListPosterior
from fedleak.attacks.recommendation.item_deltas import Direction, RowNorm
from fedleak.attacks.recommendation.matched_filter import MatchedFilter
from fedleak.attacks.reconstruction.linear_inversion import LinearInversion
from fedleak.commands import program
from fedleak.core.attack import Attack
from fedleak.evaluation.gate import FAILED, UNCHECKED, UNDECIDED, Verdict, gate, gate_status
from fedleak.evaluation.limits import limits_of
from fedleak.evaluation.reasons import Reason
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import AttackInfo, concat, records, score_table
from fedleak.evaluation.stored_run import read_results
from fedleak.evaluation.summary import summarise
from fedleak.reports.junit import write_gate
from tests.frames import cell, results
from tests.toys import train
from tests.wording import lacking

ATTACKS: list[Attack] = [Direction(), RowNorm(), Decaf()]
LACKING = {"decaf": Reason("lacking", ("learner",))}
DIRECTION, DECAF = "direction", "decaf"

pytestmark = pytest.mark.usefixtures("without_figures")


def verdicts(limits: dict[str, float], *rows: dict[str, Any], scores: pd.DataFrame | None = None) -> list[Verdict]:
    found = Evaluation(scores=concat([] if scores is None else [scores]), missing=LACKING)
    return gate(limits_of(limits), ATTACKS)(results(*rows), found)


MORE = ": more clients are needed, if they are like these"
NOT_RUN = "; 1 attack with this metric did not run: row-norm"
CASES: dict[str, tuple[dict[str, float], list[dict[str, Any]], int, list[str]]] = {
    "beyond the limit": (
        *({"auc": 0.6}, [cell(DIRECTION, "auc", 0.7), cell("row-norm", "auc", 0.5)], FAILED),
        ["GATE FAILED: direction auc 0.700 is above the limit 0.6 (for clients like these: n = 20)"],
    ),
    "within the limit": (
        {"auc": 0.6},
        [cell(DIRECTION, "auc", 0.51), cell("row-norm", "auc", 0.5), cell("popularity", "auc", 0.9)],
        0,
        ["gate ok: highest auc 0.510 (direction) is below the limit 0.6 (for clients like these: n = 20)"],
    ),
    "lower is worse, beyond": (
        *({"l1": 0.5}, [cell(DECAF, "l1", 0.014, n=10)], FAILED),
        ["GATE FAILED: decaf l1 0.014 is below the limit 0.5 (for clients like these: n = 10)"],
    ),
    "lower is worse, within": (
        *({"null_false_positive": 0.3}, [cell(DECAF, "null_false_positive", 0.9)], 0),
        ["gate ok: lowest null_false_positive 0.900 (decaf) is above the limit 0.3 (for clients like these: n = 20)"],
    ),
    "interval contains the limit, mean within": (
        *({"auc": 0.6}, [cell(DIRECTION, "auc", 0.58, width=0.04)], UNDECIDED),
        [f"GATE UNDECIDED: direction auc 0.580 may be above the limit 0.6 (for clients like these: n = 20){MORE}"],
    ),
    "interval contains the limit, lower is worse, mean beyond": (
        *({"l1": 0.5}, [cell(DECAF, "l1", 0.4, width=0.2, n=10)], UNDECIDED),
        [f"GATE UNDECIDED: decaf l1 0.400 may be below the limit 0.5 (for clients like these: n = 10){MORE}"],
    ),
    "interval ends at the limit": (
        *({"auc": 1.0}, [cell(DIRECTION, "auc", 1.0, 1.0, 1.0)], 0),
        ["gate ok: highest auc 1.000 (direction) is at the limit 1 (for clients like these: n = 20)" + NOT_RUN],
    ),
    "few clients": (
        *({"auc": 0.6}, [cell(DIRECTION, "auc", 0.9, n=2)], UNDECIDED),
        [
            "GATE UNDECIDED: direction auc 0.900 may be above the limit 0.6 (for clients like these: n = 2): at least 3"
            " more clients are needed"
        ],
    ),
    "baselines only": (
        *({"auc": 0.6}, [cell("popularity", "auc", 0.9)], UNCHECKED),
        ["gate could not be checked: no attack measured auc: direction, row-norm do not fit this recording"],
    ),
    "nothing ran": (
        *({"l1": 0.5}, [], UNCHECKED),
        ["gate could not be checked: no attack measured l1, because decaf could not run: the recording lacks learner"],
    ),
    "no attack for the metric": (
        *({"top1": 0.5}, [cell(DIRECTION, "auc", 0.9)], UNCHECKED),
        ["gate could not be checked: no attack of this audit measures top1"],
    ),
    "not a number": (
        *({"auc": 0.6}, [cell(DIRECTION, "auc", math.nan)], UNCHECKED),
        ["gate could not be checked: auc is not defined for any of these clients"],
    ),
    "one attack without a number": (
        *({"auc": 0.6}, [cell(DIRECTION, "auc", math.nan), cell("row-norm", "auc", 0.5)], 0),
        ["gate ok: highest auc 0.500 (row-norm) is below the limit 0.6 (for clients like these: n = 20)"],
    ),
    "several limits, one exceeded": (
        *({"l1": 0.5, "auc": 0.6}, [cell(DIRECTION, "auc", 0.9)], FAILED),
        [
            "gate could not be checked: no attack measured l1, because decaf could not run: the recording lacks"
            " learner",
            "GATE FAILED: direction auc 0.900 is above the limit 0.6 (for clients like these: n = 20)",
        ],
    ),
    "several attacks, one exceeds and one is undecided": (
        *({"auc": 0.6}, [cell("row-norm", "auc", 0.65, width=0.1), cell(DIRECTION, "auc", 0.62)], FAILED),
        ["GATE FAILED: direction auc 0.620 is above the limit 0.6 (for clients like these: n = 20)"],
    ),
    "several settings, one exceeds": (
        {"auc": 0.6},
        [cell(DIRECTION, "auc", value, setting={"data": "d", "epsilon": e}) for e, value in ((1, 0.5), (8, 0.8))],
        FAILED,
        ["GATE FAILED: direction in epsilon 8 auc 0.800 is above the limit 0.6 (for clients like these: n = 20)"],
    ),
}


@pytest.mark.parametrize(("limits", "rows", "status", "lines"), CASES.values(), ids=CASES)
def test_every_case_has_its_status_and_its_line(
    limits: dict[str, float], rows: list[dict[str, Any]], status: int, lines: list[str]
) -> None:
    found = verdicts(limits, *rows)
    numbers = re.compile(r"95% interval.*?, (?=n)|about \d+ ")
    assert [numbers.sub("", verdict.message) for verdict in found] == lines
    assert gate_status([verdict.verdict for verdict in found]) == status


@pytest.mark.parametrize(
    ("number", "named"),
    [(3, "direction, row-norm, matched-filter do"), (5, "direction, row-norm, matched-filter and 2 others do")],
)
def test_of_many_attacks_that_do_not_fit_three_are_named(number: int, named: str) -> None:
    attacks = [Direction(), RowNorm(), MatchedFilter(), AffineInversion(), ListPosterior()][:number]
    (found,) = gate(limits_of({"auc": 0.6}), attacks)(results(), Evaluation())
    assert f"no attack measured auc: {named} not fit this recording" in found.message


ONE_OUTPUT = Reason("inapplicable", says="the network has a single output")


@pytest.mark.parametrize("name", ["composition/l1", "l1"])
def test_a_metric_that_this_network_does_not_have_is_answered_with_the_one_that_it_has(name: str) -> None:
    attacks = [Decaf(), RLG(), OutputShare()]
    row = {**cell("positive-share", "share-error", 0.13), "family": "composition", "tells": "the share of positives"}
    missing = Evaluation(unrelated={"decaf": ONE_OUTPUT, "rlg": ONE_OUTPUT})
    (found,) = gate(limits_of({name: 0.1}), attacks)(results(row), missing)
    assert found.message.startswith(
        "gate could not be checked: for this network the question 'the share of positives' is measured by share-error;"
        " write composition/share-error=0.1, or another limit on it; no attack measured"
    )
    assert found.message.endswith(f"no attack measured {name}, because none of 2 attacks could run: {ONE_OUTPUT}")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("certified", "the answers of linear-inversion have none on this recording"),
        (
            "bits",
            "attacks that infer some of its training examples themselves were not measured in bits, which need the"
            " records themselves, or the answers of at least five clients, and of two for each class",
        ),
    ],
)
def test_an_attack_that_ran_without_a_metric_is_not_said_to_lack_data(name: str, why: str) -> None:
    """A limit that is no value of the metric that there is, is not proposed."""
    scored = results(cell("linear-inversion", "recovered", 0.5))
    (found,) = gate(limits_of({name: 5}), [LinearInversion()])(scored, Evaluation())
    assert found.message.endswith(
        f"is measured by recovered; write reconstruction/recovered=LIMIT; no attack measured {name}: {why}"
    )


def test_of_many_reasons_the_gate_says_that_of_the_attack_which_lacks_least() -> None:
    attacks = [Direction(), RowNorm(), MatchedFilter()]
    reasons = {
        "direction": Reason("lacking", ("x", "y"), "z"),
        "row-norm": Reason("lacking", ("x",)),
        "matched-filter": Reason("misfit", says="q, q"),
    }
    (found,) = gate(limits_of({"auc": 0.6}), attacks)(results(), Evaluation(missing=reasons))
    reason = ("no attack measured auc", "row-norm could not run", "lacks x", "2 others")
    assert not lacking(found.message, "gate could not be checked", *reason)


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        ([], 0),
        (["ok", "ok"], 0),
        (["ok", "undecided"], UNDECIDED),
        (["undecided", "unchecked"], UNCHECKED),
        (["unchecked", "undecided", "failed", "ok"], FAILED),
    ],
)
def test_the_worst_outcome_is_the_status(outcomes: list[str], status: int) -> None:
    assert gate_status(outcomes) == status


def of_clients(values: list[float], low: list[float] | None = None, high: list[float] | None = None) -> pd.DataFrame:
    """Scores of the metric that is limited for each client, with the ends of its interval if there are any."""
    ends = {name: own for name, own in (("epsilon-low", low), ("epsilon-high", high)) if own is not None}
    metrics = {"epsilon": values, **ends}
    return score_table(DIRECTION, metrics, setting={"data": "d"}, seed=0, victims=list(range(len(values))))


@pytest.mark.parametrize(
    ("scores", "status", "line"),
    [
        (of_clients([1, 2, 9]), FAILED, "GATE FAILED: direction epsilon 9.000 is above the limit 8 (the worst of 3"),
        (
            *(concat([of_clients([1, 9]), of_clients([2, 1])]), FAILED),
            "GATE FAILED: direction epsilon 9.000 is above the limit 8 (the worst of 2",
        ),
        (of_clients([1, math.inf]), FAILED, "epsilon inf is above the limit 8 (the worst of 2 clients)"),
        (of_clients([1, 2, 7]), 0, "gate ok: highest epsilon 7.000 (direction) is below the limit 8 (the worst of 3"),
        (
            *(of_clients([1, 7.9], [0.9, 7.8], [1.1, 8.1]), UNDECIDED),
            "may be above the limit 8 (95% interval 7.800 to 8.100, the worst of 2 clients): its interval contains",
        ),
        (
            *(of_clients([1, 8.2], [0.9, 8.1], [1.1, 8.3]), FAILED),
            "is above the limit 8 (95% interval 8.100 to 8.300, the worst of 2 clients)",
        ),
        (
            *(of_clients([1, math.nan]), UNDECIDED),
            "1.000 may be above the limit 8 (the worst of 2 clients): a client has no value",
        ),
        (of_clients([9, math.nan]), FAILED, "GATE FAILED: direction epsilon 9.000 is above the limit 8"),
        (of_clients([math.nan]), UNCHECKED, "epsilon is not defined for any of these clients"),
    ],
)
def test_the_worst_client_decides_on_epsilon(scores: pd.DataFrame, status: int, line: str) -> None:
    mean = cell(DIRECTION, "epsilon", 2.0)  # the mean over clients says nothing
    (found,) = verdicts({"epsilon": 8}, mean, scores=scores)
    assert gate_status([found.verdict]) == status
    assert line in found.message


def test_an_interval_within_the_limit_stays_so_when_the_limit_is_relaxed() -> None:
    order = [FAILED, UNDECIDED, 0]
    for metric, limits in (("auc", [0.3, 0.49, 0.5, 0.51, 0.7]), ("l1", [0.7, 0.51, 0.5, 0.49, 0.3])):
        row = cell(DIRECTION if metric == "auc" else DECAF, metric, 0.5, width=0.05)
        found = [order.index(gate_status([v.verdict for v in verdicts({metric: limit}, row)])) for limit in limits]
        assert found == [0, 1, 1, 1, 2]


def test_the_wanted_number_of_clients_decides() -> None:
    undecided = cell(DIRECTION, "auc", 0.58, width=0.04)
    assert "more clients are needed" in verdicts({"auc": 0.6}, undecided)[0].message
    enough = cell(DIRECTION, "auc", 0.58, width=0.04 * math.sqrt(20 / 90), n=90)
    assert verdicts({"auc": 0.6}, enough)[0].verdict == "ok"
    at_the_limit = cell(DIRECTION, "auc", 0.6)
    assert "too near to the limit" in verdicts({"auc": 0.6}, at_the_limit)[0].message


def test_limit_of_a_question_needs_an_attack_of_that_question() -> None:
    rows = [cell(DIRECTION, "auc", 0.9), cell(DECAF, "l1", 0.9)]
    assert [one.verdict for one in verdicts({"recommendation/auc": 0.6, "composition/l1": 0.5}, *rows)] == [
        "failed",
        "ok",
    ]
    (one,) = verdicts({"composition/l1": 0.5}, rows[0])
    assert (one.verdict, one.metric) == ("unchecked", "composition/l1")
    (one,) = verdicts({"auc": 0.6}, cell(DIRECTION, "auc", 0.5))
    assert (one.verdict, "1 attack with this metric did not run: row-norm" in one.message) == ("ok", True)


def of_rounds(values: "np.ndarray[tuple[int, int], np.dtype[np.float64]]") -> tuple[dict[str, Any], pd.DataFrame]:
    """Row and scores of AUC of ``(rounds, clients)``."""
    clients, setting = np.arange(values.shape[1]), {"data": "d"}
    tables = [
        score_table(DIRECTION, {"auc": own}, setting=setting, seed=0, victims=clients, round=number)
        for number, own in enumerate(values)
    ]
    evaluation = Evaluation(scores=concat(tables), lines={DIRECTION: AttackInfo(role="ours", family="recommendation")})
    return records(summarise(evaluation))[0], evaluation.scores


SAFE = 0.5 + 0.001 * np.arange(100)[None] % 0.02
HIDDEN = {
    "all exposed in one round of ten": (np.vstack([np.ones((1, 100)), np.repeat(SAFE, 9, 0)]), "failed", "in round 0"),
    "all exposed, some more, in one round of ten": (
        *(np.vstack([np.where(np.arange(100) < 50, 0.8, 1.0), np.repeat(SAFE, 9, 0)]), "failed"),
        "direction in round 0 auc 0.900 is above the limit 0.6 (for clients like these: 95% interval 0.8",
    ),
    "five of a hundred exposed": (np.where(np.arange(100) < 5, 1.0, SAFE), "undecided", "5 of 100 clients are beyond"),
    "most without a value": (np.where(np.arange(100) < 95, np.nan, SAFE), "undecided", "95 of 100 clients have no"),
    "nobody exposed": (np.repeat(SAFE, 10, 0), "ok", "worst tenth"),
}


@pytest.mark.parametrize(("values", "verdict", "said"), HIDDEN.values(), ids=HIDDEN)
def test_mean_hides_no_exposed_clients(values: Any, verdict: str, said: str) -> None:
    row, scores = of_rounds(values)
    (found,) = verdicts({"auc": 0.6}, row, scores=scores)
    assert (found.verdict, said in found.message) == (verdict, True), found.message


def test_a_verdict_has_its_attack_setting_and_round_apart() -> None:
    row, scores = of_rounds(np.vstack([np.repeat(SAFE, 2, 0), np.ones((1, 100))]))
    other = cell(DIRECTION, "auc", 0.5, setting={"data": "d", "epsilon": 8})
    (found,) = verdicts({"auc": 0.6}, row, other, scores=scores)
    assert (found.attack, found.setting, found.round) == (DIRECTION, {}, 2)
    assert found.message.startswith("GATE FAILED: direction in round 2 auc")
    rows = [cell(DIRECTION, "auc", value, setting={"data": "d", "epsilon": e}) for e, value in ((1, 0.5), (8, 0.8))]
    (found,) = verdicts({"auc": 0.6}, *rows)
    assert (found.attack, found.setting, found.round) == (DIRECTION, {"epsilon": 8}, None)


@pytest.mark.parametrize("clients", [5, 20])
def test_ten_attacks_at_the_limit_rarely_fail_and_at_twice_the_limit_rarely_pass(clients: int) -> None:
    law = LAWS["AUC 0.5 or 1, mean 0.925"]
    found = shares(law, law.mean, clients, attacks=10, audits=60, correlation=0.0)
    assert found.get("failed", 0) <= 0.15  # at most .05 over many audits: bench/gate.py
    law = LAWS["one in ten exposed"]
    found = shares(law, law.mean / 2, clients, attacks=10, audits=60, correlation=0.0)
    assert found.get("ok", 0) <= 0.15


def test_ten_attacks_beyond_the_limit_fail() -> None:
    assert shares(LAWS["coin"], 0.1, 40, attacks=10, audits=2, correlation=0.0) == {"failed": 1.0}


@pytest.mark.integration
def test_the_benchmark_judges_as_the_gate() -> None:
    check(audits=2)


TWO_POINTS: dict[str, tuple[float, float, float]] = {
    "one in ten exposed": (0.0, 1.0, 0.1),
    "nine in ten exposed": (0.0, 1.0, 0.9),
    "half or all of an AUC": (0.5, 1.0, 0.85),
}


@pytest.mark.integration
@pytest.mark.parametrize(("least", "most", "share"), TWO_POINTS.values(), ids=TWO_POINTS)
@pytest.mark.parametrize("clients", [5, 12])
def test_values_of_two_points_are_rarely_judged_wrongly(least: float, most: float, share: float, clients: int) -> None:
    """At the limit a red verdict is wrong, at half of the mean as the limit a green one."""
    generator = np.random.default_rng(0)
    mean = least + (most - least) * share
    for limit, wrong in ((mean, "failed"), (least + (mean - least) / 2, "ok")):
        outcomes: list[str] = []
        for _ in range(40):
            values = np.where(generator.random(clients) < share, most, least)
            row, scores = of_rounds(values[None])
            (found,) = verdicts({"auc": limit}, row, scores=scores)
            outcomes.append(found.verdict)
        assert outcomes.count(wrong) <= 5, (limit, outcomes)  # at most .05 over many: bench/gate.py


def test_a_limit_on_the_recording_is_held_against_the_fact() -> None:
    values = np.array([0.2, 0.9, 0.4, 0.5, 0.3])
    row, scores = of_rounds(values[None])
    evaluation = Evaluation(scores=scores)
    judged = {
        limit: gate(limits_of({"auc": limit}), ATTACKS, None, recorded=5)(results(row), evaluation)[0]
        for limit in (0.45, 0.95)
    }
    assert {limit: one.verdict for limit, one in judged.items()} == {0.45: "failed", 0.95: "ok"}
    assert "for the clients of this recording, all of them attacked, n = 5" in judged[0.95].message
    assert judged[0.95].about == "recording"
    (drawn,) = gate(limits_of({"auc": 0.95}), ATTACKS, None, recorded=50)(results(row), evaluation)
    assert (drawn.verdict, "some of them attacked" in drawn.message) == ("ok", True)
    assert drawn.low is not None
    assert drawn.low < 0.46 < (drawn.high or 0.0)


def test_a_round_of_a_recording_that_was_attacked_whole_is_a_fact_too() -> None:
    row, scores = of_rounds(np.array([[0.2, 0.3, 0.4], [0.8, 0.9, 0.7]]))
    (found,) = gate(limits_of({"auc": 0.6}), ATTACKS, None, recorded=3)(results(row), Evaluation(scores=scores))
    assert found.verdict == "failed"
    assert "in round 1 auc 0.800" in found.message
    assert "for the clients of this recording, all of them attacked, n = 3" in found.message


def test_where_some_clients_of_a_recording_were_attacked_the_others_decide() -> None:
    row, scores = of_rounds(np.array([[0.2, 0.9, 0.4]]))
    (found,) = gate(limits_of({"auc": 0.6}), ATTACKS, None, recorded=4)(results(row), Evaluation(scores=scores))
    assert found.verdict == "undecided"
    assert found.message.endswith(": attack more of the 4 clients; with all of them it is decided")


@pytest.mark.parametrize(("value", "limit"), [(0.0, 0.1), (1.0, 0.9)])
def test_so_many_more_equal_clients_decide_as_the_line_says(value: float, limit: float) -> None:
    """The interval of n equal values shrinks with n, not with its root."""

    def judged(clients: int) -> Verdict:
        row, scores = of_rounds(np.full((1, clients), value))
        return gate(limits_of({"auc": limit}), ATTACKS)(results(row), Evaluation(scores=scores))[0]

    (more,) = map(int, re.findall(r"about (\d+) more clients", judged(12).message))
    assert judged(12 + more).verdict in ("ok", "failed")
    assert judged(12 + more - 2).verdict == "undecided"


def test_gate_xml_holds_any_text(tmp_path: Path) -> None:
    verdict = dataclasses.asdict(verdicts({"auc": 0.6}, cell(DIRECTION, "auc", 0.9))[0])
    write_gate(tmp_path, [{**verdict, "message": "a\x01b\x1f<&\ud800"}])
    found = ElementTree.parse(tmp_path / "gate.xml").getroot().find("testsuite/testcase/failure")
    assert found is not None
    assert found.get("message", "").replace("\ufffd", "?") == "a?b?<&?"


@pytest.fixture(scope="module")
def deltas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gated")
    train(folder, rounds=1, users=12, items=60)
    return folder / "deltas"


@pytest.mark.integration
@pytest.mark.parametrize(
    ("given", "status", "said"),
    [
        (["auc=0.01"], FAILED, "GATE FAILED: "),
        (["auc=1.0"], 0, "gate ok: highest auc"),
        (["auc=1.0", "l1=0.99"], UNCHECKED, "gate could not be checked: no attack measured l1"),
    ],
)
def test_the_verdict_is_a_status_a_line_and_stands_in_the_results(
    given: list[str], status: int, said: str, deltas: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gates = [word for limit in given for word in ("--gate", limit)]
    assert program.main(["audit", str(deltas), "--out", str(tmp_path), *gates]) == status
    assert said in capsys.readouterr().out
    verdicts = read_results(tmp_path).gate
    assert said in " ".join(verdict["message"] for verdict in verdicts)
    assert verdicts == json.loads((tmp_path / "results.json").read_text())["gate"]
    assert said in (tmp_path / "report.html").read_text()
    suite = ElementTree.parse(tmp_path / "gate.xml").getroot()
    assert (suite.get("tests"), suite.get("errors"), suite.get("failures")) == (
        str(len(given)),
        str(int(status == UNCHECKED)),
        str(int(status == FAILED)),
    )


@pytest.mark.integration
def test_an_audit_is_compared_with_its_reference(
    deltas: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, again = (["audit", str(deltas), "--out", str(tmp_path / name)] for name in ("first", "again"))
    assert program.main(first) == 0
    assert program.main([*again, "--reference", str(tmp_path / "first"), "--gate", "change=0.0"]) == 0
    assert "gate ok: highest change 0.000" in capsys.readouterr().out
    (compared,) = read_results(tmp_path / "again").changes
    assert {(row["verdict"], row["change"]) for row in compared["rows"]} == {("equal", 0.0)}
    assert "What changed" in (tmp_path / "again/report.html").read_text()
    missing = ["--reference", str(tmp_path / "none")]
    assert program.main([*again, *missing]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.integration
@pytest.mark.parametrize("given", ["AUC=0.01", "auc=high", "coverage=0.5", "--gate=l1=x", "--gate.auc=x"])
def test_a_wrong_gate_is_one_line_before_anything_runs(
    given: str, deltas: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [given] if given.startswith("--") else ["--gate", given]
    (tmp_path / "gate.xml").write_text("of an earlier audit")
    assert program.main(["audit", str(deltas), "--out", str(tmp_path), *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_gate_xml_does_not_outlive_a_damaged_recording(tmp_path: Path) -> None:
    (tmp_path / "gate.xml").write_text("of an earlier audit")
    assert program.main(["audit", str(tmp_path / "none"), "--out", str(tmp_path), "--gate", "auc=0.6"]) == 2
    assert not (tmp_path / "gate.xml").exists()


@pytest.mark.parametrize(
    ("metric", "mean", "verdict"), [("auc", 0.5, "ok"), ("l1", 0.9, "unchecked"), ("l1", 0.1, "failed")]
)
def test_a_learner_that_does_not_match_leaves_limits_unchecked_that_need_it(
    metric: str, mean: float, verdict: str
) -> None:
    attack = {"auc": DIRECTION, "l1": DECAF}[metric]
    evaluation = Evaluation(mismatch="0.01 x")
    (found,) = gate(limits_of({metric: 0.6}), ATTACKS)(results(cell(attack, metric, mean)), evaluation)
    assert found.verdict == verdict
    assert ("0.01 x" in found.message) == (verdict == "unchecked")
