"""Clients of Flower with a guard: honest rounds arrive, planted faults do not."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
pytest.importorskip("flwr")

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedleak_guard.chained_log import read_log
from fedleak_guard.flower import POLICY, egress_mod
from tests.guard_toys import log_of, model, update, write_policy

ROOT = Path(__file__).resolve().parents[2]
Reply = Callable[[Message], Message]


def simulate(folder: Path, fault: str) -> list[dict[str, Any]]:
    """Runs the simulation, and returns what arrived at the server."""
    command = [sys.executable, "-m", "tests.flower.guarded", str(folder), fault]
    environment = {**os.environ, "PYTHONPATH": ":".join(str(ROOT / part) for part in ("", "recorder", "guard"))}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False, timeout=500)
    (folder / "said").write_bytes(done.stdout + done.stderr)
    arrived = folder / "arrived.jsonl"
    return [json.loads(line) for line in arrived.read_text().splitlines()] if arrived.exists() else []


@pytest.mark.integration
def test_honest_rounds_of_a_simulation_arrive(tmp_path: Path) -> None:
    arrived = simulate(tmp_path, "none")
    assert arrived == [{"error": None, "names": ["arrays", "metrics"]}] * 4, (tmp_path / "said").read_text()
    entries, _ = read_log(log_of(tmp_path))
    assert [entry["event"] for entry in entries] == ["released"] * 4
    assert sorted(entry["round"] for entry in entries) == [1, 1, 2, 2]
    assert all("own-label-counts" in entry["checks"] for entry in entries)  # with the records of own_data


@pytest.mark.integration
@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("dp-off", "declared-noise"),
        ("per-person", "metric-values"),
        ("tensor", "allowed-tensors"),
        ("model", "received-hash"),
        ("no-policy", ""),
    ],
)
def test_a_planted_fault_of_a_simulation_does_not_arrive(tmp_path: Path, fault: str, check: str) -> None:
    arrived = simulate(tmp_path, fault)
    said = (tmp_path / "said").read_text()
    assert arrived, said
    assert all(one == {"error": "the site's guard refused the message", "names": []} for one in arrived)
    assert "nothing left the site" in said
    if check:
        entries, _ = read_log(log_of(tmp_path))
        assert {entry["event"] for entry in entries} == {"refused"}
        assert all(entry["checks"][check]["found"] for entry in entries)


def asked() -> Message:
    """A server's message of the third round."""
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    content = RecordDict({"arrays": ArrayRecord({name: Array(value) for name, value in model().items()})})
    content["config"] = ConfigRecord({"server-round": 3})
    return Message(content=content, dst_node_id=1, message_type="train")


def replied(records: dict[str, Any]) -> Reply:
    return lambda message: Message(content=RecordDict(records), reply_to=message)


def sends(reply: Reply, policy: Path | None = None) -> Message:
    """What the mod lets a client send."""
    context = Context(run_id=5, node_id=1, node_config={}, state=RecordDict(), run_config={})
    mod = egress_mod(None if policy is None else str(policy))
    return mod(asked(), context, lambda message, _: reply(message))


def trained(bias: float = 0.0) -> ArrayRecord:
    after = {name: value + update()[name] + np.float32(bias) for name, value in model().items()}
    return ArrayRecord({name: Array(value) for name, value in after.items()})


def test_an_allowed_reply_leaves_and_the_environment_names_the_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(POLICY, str(write_policy(tmp_path, "metrics: {names: [loss]}\n")))
    metrics = MetricRecord({"num-examples": 20, "loss": 0.5})
    left = sends(replied({"arrays": trained(), "metrics": metrics}))
    assert not left.has_error()
    for name, array in trained().items():
        assert np.array_equal(left.content.array_records["arrays"][name].numpy(), array.numpy())
    assert dict(left.content.metric_records["metrics"]) == {"num-examples": 20, "loss": 0.5}
    (entry,) = read_log(log_of(tmp_path))[0]
    assert (entry["round"], entry["job"]) == (3, "5")


@pytest.mark.parametrize(
    "records",
    [
        {"patient 7": trained()},
        {"arrays": trained(), "config": ConfigRecord({"note": "patient 7"})},
        {"arrays": trained(), "metrics": MetricRecord({"patient 7": 1.0})},
        {"arrays": trained(), "metrics": MetricRecord({"num-examples": 2**60})},
        {"arrays": ArrayRecord([np.ones(3)])},
        {"arrays": trained(bias=np.nan)},
    ],
)
def test_what_the_guard_does_not_understand_does_not_leave(tmp_path: Path, records: dict[str, Any]) -> None:
    left = sends(replied(records), write_policy(tmp_path))
    assert left.error.reason == "the site's guard refused the message"


def test_no_policy_no_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(POLICY, raising=False)
    assert sends(replied({"arrays": trained()})).has_error()


def test_the_text_of_a_clients_error_does_not_leave(tmp_path: Path) -> None:
    def raising(_: Message) -> Message:
        raise RuntimeError("patient 7")

    policy = write_policy(tmp_path)
    assert sends(raising, policy).error.reason == "the client failed"
    left = sends(lambda message: Message(Error(7000, "patient 7"), reply_to=message), policy)
    assert (left.error.code, left.error.reason) == (2, "the client failed")  # one code, whatever the client said
