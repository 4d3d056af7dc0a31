"""Checks of the received model against thresholds of honest rounds: what is found, and what is not made."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedleak.guard_checks.received_model import StatisticsOfModel
from fedleak_guard import Guard, Message, RefusedError
from fedleak_guard.chained_log import read_log
from fedleak_guard.check import NotMadeError
from fedleak_guard.known_checks import checks_to_make
from fedleak_guard.policy import read_policy
from fedleak_guard.thresholds import write_thresholds
from tests.guard_networks import initial, policy, stepped, suppressed, thresholds, update
from tests.guard_toys import log_of, message, write_policy

LIMITS = {"dead-units": 20.0, "weight-law": 3.0, "server-step": 3.0}


def site(folder: Path, limits: dict[str, float] | None = None, **changes: Any) -> Guard:
    path = policy(folder, f"{{thresholds: {folder}/thresholds.json}}", "required: [received-model]\n")
    write_thresholds(folder / "thresholds.json", thresholds(LIMITS if limits is None else limits, **changes))
    return Guard(path)


def sent(number: int, received: dict[str, Any]) -> Message:
    return Message(job="job", round=number, sent=update(number), received=received)


def test_honest_rounds_leave_and_a_manipulated_model_is_refused(tmp_path: Path) -> None:
    guard, model = site(tmp_path), initial()
    for number in range(5):
        guard.release(sent(number, model))
        with pytest.raises(RefusedError, match=r"received-model: .*dead-units is"):
            guard.release(sent(number, suppressed(model)))
        model = stepped(model, number)
    entries = read_log(log_of(tmp_path))[0]
    assert [entry["event"] for entry in entries] == ["released", "refused"] * 5
    found = entries[2]["statistics"]["received-model"]
    assert found["records"] == 12
    assert found["server-step"] == pytest.approx(1, rel=0.1)


def test_a_refused_model_is_not_compared_with(tmp_path: Path) -> None:
    guard, model = site(tmp_path), initial()
    guard.release(sent(0, model))
    for number in range(1, 4):
        with pytest.raises(RefusedError, match="weight-law is"):
            guard.release(sent(number, suppressed(model)))
    guard.release(sent(4, stepped(model, 1)))


def test_the_model_before_is_known_to_another_process_and_by_job(tmp_path: Path) -> None:
    model = initial()
    site(tmp_path).release(sent(0, model))
    with pytest.raises(RefusedError, match="server-step is"):
        site(tmp_path).release(sent(1, stepped(model, 1, size=0.1)))
    site(tmp_path).release(Message(job="another", round=0, sent=update(0), received=initial(3)))


def test_thresholds_of_another_model_or_of_other_records_are_not_used(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="of another model"):
        site(tmp_path, tensors="0" * 64).release(sent(0, initial()))
    with pytest.raises(RefusedError, match="those of 7 records"):
        site(tmp_path, records=7).release(sent(0, initial()))


def test_a_server_cannot_switch_the_check_off_by_another_tensor(tmp_path: Path) -> None:
    """Also where the policy does not require the check."""
    guard = site(tmp_path)
    path = tmp_path / "policy.yaml"
    path.write_text(path.read_text().replace("required: [received-model]\n", ""))
    guard.release(sent(0, initial()))
    with pytest.raises(RefusedError, match="of another model"):
        guard.release(sent(1, {**suppressed(initial()), "more": np.zeros(3, "f")}))
    renamed = {name.replace("2.", "3."): value for name, value in suppressed(initial()).items()}
    with pytest.raises(RefusedError, match="of another model"):
        guard.release(sent(1, renamed))


def test_a_threshold_whose_check_cannot_be_computed_is_said(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="no-such-check could not be computed"):
        site(tmp_path, {**LIMITS, "no-such-check": 1.0}).release(sent(0, initial()))


@pytest.mark.parametrize("damage", ["none", "text", "{}", '{"format": 2}', '{"format": 1, "thresholds": {"a": "b"}}'])
def test_damaged_thresholds_are_a_refusal(tmp_path: Path, damage: str) -> None:
    guard, path = site(tmp_path), tmp_path / "thresholds.json"
    path.unlink() if damage == "none" else path.write_text(damage)
    with pytest.raises(RefusedError, match="received-model failed: expected"):
        guard.release(sent(0, initial()))


def test_without_thresholds_the_log_gets_the_statistics_and_says_so(tmp_path: Path) -> None:
    guard = Guard(policy(tmp_path, "{record: true}"))
    guard.release(sent(0, initial()))
    (line,) = log_of(tmp_path).read_text().splitlines()
    entry = json.loads(line)
    assert "the statistics are in the log" in entry["not_made"]["received-model"]
    assert {"dead-units", "loss-jump", "weight-law", "records"} <= entry["statistics"]["received-model"].keys()


@pytest.mark.parametrize(("received", "said"), [({"a": 1.0}, "no received.thresholds"), (None, "thresholds")])
def test_checks_without_a_threshold_are_not_said_to_have_found_nothing(
    tmp_path: Path, received: dict[str, float] | None, said: str
) -> None:
    with pytest.raises(NotMadeError, match=said):
        StatisticsOfModel().measure(message(received=received), read_policy(write_policy(tmp_path)), first=False)


def test_every_check_is_found_by_its_file() -> None:
    for name, kind in checks_to_make().items():
        folder = "fedleak.guard_checks" if kind.exact else "fedleak_guard.checks"
        assert kind.__module__ == f"{folder}.{name.replace('-', '_')}"
