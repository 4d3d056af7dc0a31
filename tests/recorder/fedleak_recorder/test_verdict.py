import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fedleak_recorder.errors import InputError
from fedleak_recorder.pseudonyms import pseudonym, run_name
from fedleak_recorder.verdict import Decision, LimitExceededError, VerdictFile, remaining

KEY = bytes(range(16))
LEAKY = pseudonym("leaky", KEY)


def write(path: Path, number: int, overall: str = "ok", **changes: Any) -> Path:
    verdict = {"exceeded": "exceeded", "unknown": "unmeasured"}.get(overall, "open")
    limit = {"limit": "auc", "at": 0.6, "verdict": verdict, "attack": "one", "clients": [LEAKY]}
    content = {"format": 1, "run": run_name(KEY), "round": number, "overall": overall, "limits": [limit], **changes}
    path.write_text(json.dumps(content))
    return path


def test_first_round_needs_no_verdict(tmp_path: Path) -> None:
    assert VerdictFile(tmp_path / "v", missing="closed").before(1) == Decision()


@pytest.mark.parametrize(("missing", "stops"), [("open", False), ("closed", True)])
@pytest.mark.parametrize(
    "state", ["missing", "cut", "no verdict", "old", "of a later round", "other training", "unknown"]
)
def test_verdict_that_does_not_count_is_open_or_closed(tmp_path: Path, state: str, missing: Any, stops: bool) -> None:
    path = tmp_path / "verdict.json"
    verdict = VerdictFile(path, missing=missing, wait_s=0)
    assert not verdict.before(1, KEY).stop
    if state == "cut":
        path.write_text(write(path, 2).read_text()[:-5])
    elif state == "no verdict":
        path.write_text("[1]")
    elif state == "old":
        write(path, 1)
    elif state == "of a later round":
        write(path, 3)
    elif state == "other training":
        write(path, 2, "exceeded", run="x")
    elif state == "unknown":
        write(path, 2, "unknown")
    decision = verdict.before(3, KEY)
    assert decision.stop == stops
    assert decision.reason


def test_fresh_verdict_lets_the_training_go_on(tmp_path: Path) -> None:
    path = tmp_path / "v"
    verdict = VerdictFile(path, missing="closed")
    assert verdict.before(1, KEY) == Decision()
    write(path, 2)
    assert verdict.before(3, KEY) == Decision()
    assert VerdictFile(path, missing="closed", behind=4).before(3, KEY) == Decision()


def test_behind_is_the_number_of_rounds_that_a_verdict_may_be_older(tmp_path: Path) -> None:
    verdict = VerdictFile(tmp_path / "v", wait_s=0, behind=1)
    verdict.before(1)
    write(verdict.path, 2)
    assert [verdict.before(number).stop for number in (3, 4, 5)] == [False, False, True]


def test_exceeded_stops_even_if_it_is_old(tmp_path: Path) -> None:
    verdict = VerdictFile(write(tmp_path / "v", 1, "exceeded"), missing="open")
    decision = verdict.before(9, KEY)
    assert decision.stop
    assert "auc" in decision.reason
    with pytest.raises(LimitExceededError, match="auc"):
        remaining(["a"], decision, KEY)


def test_log_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    decision = VerdictFile(write(tmp_path / "v", 1, "exceeded"), on_exceeded="log").before(2, KEY)
    assert not decision.stop
    assert not decision.dropped
    assert "exceeds the limit" in caplog.text


def test_dropped_client_stays_out(tmp_path: Path) -> None:
    verdict = VerdictFile(write(tmp_path / "v", 1, "exceeded"), on_exceeded="drop")
    assert remaining(["leaky", "other"], verdict.before(2, KEY), KEY) == ["other"]
    write(
        verdict.path,
        2,
        "exceeded",
        limits=[{"limit": "auc", "at": 1, "verdict": "exceeded", "attack": "a", "clients": []}],
    )
    decision = verdict.before(3, KEY)
    assert remaining(["leaky", "other"], decision, KEY) == ["other"]
    with pytest.raises(LimitExceededError):
        remaining(["leaky"], decision, KEY)


def test_drop_without_names_stops(tmp_path: Path) -> None:
    limits = [{"limit": "auc", "at": 1, "verdict": "exceeded", "attack": "a", "clients": []}]
    path = write(tmp_path / "v", 1, "exceeded", limits=limits)
    assert VerdictFile(path, on_exceeded="drop").before(2, KEY).stop


def test_wait_is_bounded_and_ends_with_the_verdict(tmp_path: Path) -> None:
    path = tmp_path / "v"
    verdict = VerdictFile(path, missing="closed", wait_s=0.2)
    verdict.before(1)
    assert verdict.before(2).stop
    verdict = VerdictFile(path, missing="closed", wait_s=60)
    verdict.before(1)
    writer = threading.Timer(0.2, write, (path, 1))
    start = time.monotonic()
    writer.start()
    assert not verdict.before(2).stop
    writer.join()
    assert time.monotonic() - start < 60


def test_limit_of_another_form_is_unreadable(tmp_path: Path) -> None:
    forms: tuple[Any, ...] = (
        [{}],
        [{"limit": "auc", "at": 1, "verdict": "exceeded", "attack": "a", "clients": ["x"]}],
        {},
    )
    for limits in forms:
        verdict = VerdictFile(write(tmp_path / "v", 1, "exceeded", limits=limits), wait_s=0)
        verdict.before(1)
        decision = verdict.before(2)
        assert decision.stop
        assert "exceeds" not in decision.reason


RIGHT = {"limit": "auc", "at": 0.6, "verdict": "open", "attack": "one", "clients": []}


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param([], id="no limits"),
        pytest.param([{**RIGHT, "verdict": "EXCEEDED"}], id="odd word"),
        pytest.param([{**RIGHT, "verdict": ["open"]}], id="no word"),
        pytest.param([{**RIGHT, "verdict": "exceeded", "attack": None}], id="exceeded by no attack"),
        pytest.param([{key: value for key, value in RIGHT.items() if key != "attack"}], id="no attack"),
        pytest.param([{**RIGHT, "at": True}], id="truth as number"),
        pytest.param([{**RIGHT, "clients": [True]}], id="truth as client"),
        pytest.param([RIGHT, "open"], id="a text as limit"),
    ],
)
@pytest.mark.parametrize("overall", ["ok", "exceeded", "unknown"])
def test_verdict_with_odd_limits_ends_the_training_by_default(tmp_path: Path, overall: str, limits: Any) -> None:
    verdict = VerdictFile(tmp_path / "v", wait_s=0)
    assert verdict.before(1, KEY) == Decision()
    write(verdict.path, 1, overall, limits=limits)
    assert verdict.before(2, KEY).stop


@pytest.mark.parametrize("missing", ["open", "closed"])
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize(
    ("overall", "states"),
    [
        ("ok", ["exceeded"]),
        ("ok", ["kept", "exceeded"]),
        ("ok", ["kept", "unmeasured"]),
        ("unknown", ["exceeded", "unmeasured"]),
        ("unknown", ["kept", "open"]),
        ("exceeded", ["kept"]),
        ("exceeded", ["unmeasured"]),
    ],
)
def test_verdict_that_contradicts_its_limits_ends_the_training(
    tmp_path: Path, overall: str, states: list[str], number: int, missing: Any
) -> None:
    limits = [{**RIGHT, "verdict": state} for state in states]
    verdict = VerdictFile(write(tmp_path / "v", 1, overall, limits=limits), missing=missing, wait_s=0)
    if number == 2:
        verdict._first = 1  # the round before it needs a verdict
    decision = verdict.before(2, KEY)
    assert decision.stop
    assert f"says {overall}" in decision.reason


def test_contradiction_of_another_training_says_nothing(tmp_path: Path) -> None:
    limits = [{**RIGHT, "verdict": "exceeded"}]
    path = write(tmp_path / "v", 1, "ok", limits=limits, run="x")
    assert VerdictFile(path, wait_s=0).before(2, KEY) == Decision()


def test_verdict_on_a_round_that_a_resumed_training_records_anew_does_not_count(tmp_path: Path) -> None:
    path = write(tmp_path / "v", 5)
    verdict = VerdictFile(path, wait_s=0)
    assert verdict.before(5, KEY) == Decision()  # the training goes on from round 5, which had been recorded
    assert "as it was before" in verdict.before(6, KEY).reason
    write(path, 5, time="later")
    assert verdict.before(6, KEY) == Decision()


def test_first_round_says_what_a_missing_verdict_will_mean(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for missing, said in (("closed", "the training ends"), ("open", "the training goes on unchecked")):
        caplog.clear()
        verdict = VerdictFile(tmp_path / "v", missing=missing, wait_s=0)  # type: ignore[arg-type]
        verdict.before(0)
        assert said in caplog.text
        assert caplog.text.count("without one that counts") == 1
        verdict.before(1)
        assert caplog.text.count("without one that counts") == 1


def test_default_is_closed_and_waits() -> None:
    verdict = VerdictFile("v")
    assert (verdict.missing, verdict.wait_s) == ("closed", 60)


@pytest.mark.parametrize(
    "options",
    [{"on_exceeded": "halt"}, {"missing": "maybe"}, {"wait_s": -1}, {"wait_s": float("nan")}, {"behind": True}],
)
def test_wrong_option_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        VerdictFile("v", **options)
