"""A gate fails closed: what is over a limit fails, what was not measured is no pass, and a guess trips nothing."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

import attack
from attacks.base import Attack
from attacks.composition.decaf import Decaf
from attacks.recommendation.item_deltas import Direction, RowNorm
from evaluation.gate import FAILED, UNCHECKED, check_limits, gate, gate_status
from experiments.commands.plain_names import read_gate
from protocol.errors import InputError
from reports.run import Run
from tests.frames import cell, results
from tests.toys import train

ATTACKS: list[Attack] = [Direction(), RowNorm(), Decaf()]
LACKING = {"decaf": "the recording lacks learner"}


def checked(metric: str, limit: float, *rows: dict[str, Any], missing: dict[str, str] | None = None) -> tuple[int, str]:
    verdicts = gate({metric: limit}, ATTACKS)(results(*rows), missing or {})
    return gate_status(verdicts), verdicts[0].message


@pytest.mark.parametrize(
    ("result", "limit", "status"),
    [
        (cell("direction", "auc", 0.7), 0.6, FAILED),
        (cell("direction", "auc", 0.5), 0.6, 0),
        (cell("decaf", "l1", 0.1), 0.5, FAILED),
        (cell("decaf", "l1", 0.6), 0.5, 0),
        (cell("decaf", "null_false_positive", 0.01), 0.3, FAILED),  # hardly a wrong class: much inferred
        (cell("decaf", "null_false_negative", 0.9), 0.3, 0),
        (cell("popularity", "auc", 0.9), 0.6, UNCHECKED),  # a guess is no attack, and none was scored
        (cell("uniform-present", "l1", 0.1), 0.5, UNCHECKED),
        (cell("direction", "auc", math.nan), 0.6, UNCHECKED),
        (cell("direction", "auc", 0.61, n=2), 0.6, UNCHECKED),  # the interval holds the limit
        (cell("direction", "auc", 0.9, n=2), 0.6, FAILED),  # the whole interval lies beyond it
        (cell("direction", "auc", 0.3, n=2), 0.6, UNCHECKED),
    ],
)
def test_a_limit_points_the_way_its_metric_does(result: dict[str, Any], limit: float, status: int) -> None:
    assert checked(result["metric"], limit, result)[0] == status


def test_the_lines_say_what_happened() -> None:
    assert checked("l1", 0.5, cell("decaf", "l1", 0.014, n=10)) == (
        FAILED,
        "GATE FAILED: decaf l1 0.014 [0.004, 0.024], n = 10: below the limit 0.5",
    )
    ok = checked("auc", 0.6, cell("direction", "auc", 0.51), cell("row-norm", "auc", 0.5), cell("chance", "auc", 0.9))
    assert ok == (0, "gate ok: highest auc 0.510 (direction) <= 0.6")
    assert checked("l1", 0.5, missing=LACKING) == (
        UNCHECKED,
        "gate could not be checked: no attack measured l1, because decaf could not run: the recording lacks learner",
    )
    assert "no attack of this audit measures top1" in checked("top1", 0.5)[1]
    assert "not defined" in checked("auc", 0.5, cell("direction", "auc", math.nan))[1]


def test_one_failed_limit_decides_over_one_that_could_not_be_checked() -> None:
    verdicts = gate({"l1": 0.5, "auc": 0.6}, ATTACKS)(results(cell("direction", "auc", 0.9)), LACKING)
    assert [v.verdict for v in verdicts] == ["unchecked", "failed"]
    assert gate_status(verdicts) == FAILED
    assert gate_status([]) == 0


@pytest.mark.parametrize(
    ("text", "limits"),
    [("auc=0.6", {"auc": 0.6}), ("auc=0.6,l1=.3", {"auc": 0.6, "l1": 0.3}), ('{"f1": 1}', {"f1": 1.0})],
)
def test_limits_are_read(text: str, limits: dict[str, float]) -> None:
    assert read_gate(text) == limits


@pytest.mark.parametrize("text", ["auc", "auc=high", "", "auc=nan", "auc=inf", "{", "[1]", '{"auc": null}', "auc=0.6,"])
def test_a_malformed_limit_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"--gate METRIC=NUMBER|a finite limit on auc") as refused:
        read_gate(text)
    assert refused.value.found in (text, "nan", "inf")


@pytest.mark.parametrize("metric", ["AUC", "l11", "coverage", "fpr", "ndcg@10"])
def test_what_measures_no_leak_cannot_be_a_limit(metric: str) -> None:
    with pytest.raises(InputError, match="auc, f1") as refused:
        check_limits({metric: 0.5})
    assert "coverage" not in refused.value.expected
    assert repr(metric) in str(refused.value)


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
        (["l1=0.99"], UNCHECKED, "gate could not be checked: no attack measured l1"),
        (["auc=1.0", "l1=0.99"], UNCHECKED, "gate could not be checked"),
    ],
)
def test_the_verdict_is_a_status_a_line_and_stands_in_the_results(
    given: list[str], status: int, said: str, deltas: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gates = [word for limit in given for word in ("--gate", limit)]
    assert attack.main(["audit", "--deltas", str(deltas), "--out", str(tmp_path), *gates]) == status
    assert said in capsys.readouterr().out
    verdicts = Run.read(tmp_path / "results.json").gate
    assert said in " ".join(verdict["message"] for verdict in verdicts)
    assert verdicts == json.loads((tmp_path / "results.json").read_text())["gate"]
    assert said in (tmp_path / "report.html").read_text()


@pytest.mark.integration
@pytest.mark.parametrize("given", ["AUC=0.01", "auc=high", "coverage=0.5", "--gate=l1=x", "--gate.auc=x"])
def test_a_wrong_gate_is_one_line_before_anything_runs(
    given: str, deltas: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [given] if given.startswith("--") else ["--gate", given]
    assert attack.main(["audit", "--deltas", str(deltas), "--out", str(tmp_path / "o"), *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "o").exists()
