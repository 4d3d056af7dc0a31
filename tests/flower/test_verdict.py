"""Strategies that read a verdict before each round: who is asked, and when the training ends."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.common import Code, FitIns, FitRes, Status, ndarrays_to_parameters
from flwr.server.strategy import FedAvg as LegacyFedAvg
from flwr.serverapp.strategy import FedAvg

from fedleak.recordings.recording import Recording
from fedleak_recorder import Recorder
from fedleak_recorder.flower import RecordingLegacyStrategy, RecordingStrategy
from fedleak_recorder.flower_verdict import VerdictLegacyStrategy, VerdictStrategy
from fedleak_recorder.pseudonyms import pseudonym, run_name
from fedleak_recorder.verdict import LimitExceededError, VerdictFile
from tests.flower.here import start

KEY = bytes(range(16))
ROOT = Path(__file__).resolve().parents[2]


def write(path: Path, number: int, client: str | None) -> None:
    """The verdict after a round, that names a client if a limit is exceeded."""
    named = [] if client is None else [pseudonym(client, KEY)]
    verdict = "open" if client is None else "exceeded"
    limit = {"limit": "auc", "at": 0.6, "verdict": verdict, "attack": "one", "clients": named}
    content = {"format": 1, "run": run_name(KEY), "round": number, "limits": [limit]}
    path.write_text(json.dumps({**content, "overall": "ok" if client is None else "exceeded"}))


def train(folder: Path, leaky_from: int, **options: Any) -> list[tuple[int, int]]:
    """Round and node of every message of a training of four rounds, whose node 12 leaks from some round on."""
    asked = []

    def answer(message: Message) -> Message:
        number, node = int(message.content["config"]["server-round"]), message.metadata.dst_node_id
        asked.append((number, node))
        write(folder / "verdict.json", number, "12" if number >= leaky_from else None)
        content = RecordDict({"arrays": message.content["arrays"], "metrics": MetricRecord({"num-examples": 3})})
        return Message(content=content, reply_to=message)

    nodes = [11, 12, 13]
    with Recorder(folder / "deltas", parameters={"w": (2,)}, key=KEY) as recorder:
        inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=3, min_available_nodes=3)
        verdict = VerdictFile(folder / "verdict.json", wait_s=0, **options)
        strategy = VerdictStrategy(RecordingStrategy(inner, recorder), verdict)
        start(strategy, ArrayRecord({"w": Array(np.zeros(2, np.float32))}), answer, nodes=nodes, rounds=4)
    return asked


def test_training_goes_on_within_the_limits(tmp_path: Path) -> None:
    assert len(train(tmp_path, 9)) == 12


def test_training_ends_before_the_next_round(tmp_path: Path) -> None:
    with pytest.raises(LimitExceededError, match="auc"):
        train(tmp_path, 2)
    recording = Recording(tmp_path / "deltas")
    assert recording.rounds == [1, 2]
    assert recording.closed


def test_client_is_dropped(tmp_path: Path) -> None:
    asked = train(tmp_path, 2, on_exceeded="drop")
    assert sorted(node for number, node in asked if number == 2) == [11, 12, 13]
    assert sorted(node for number, node in asked if number > 2) == [11, 11, 13, 13]


def test_log_asks_everybody(tmp_path: Path) -> None:
    assert len(train(tmp_path, 1, on_exceeded="log")) == 12


class _Proxy:
    def __init__(self, cid: str) -> None:
        self.cid = cid


class _Everybody(LegacyFedAvg):
    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
        return [(_Proxy(cid), FitIns(parameters, {})) for cid in ("11", "12")]


@pytest.mark.parametrize("action", ["drop", "stop"])
def test_legacy_strategy_does_the_same(tmp_path: Path, action: Any) -> None:
    path, given = tmp_path / "verdict.json", ndarrays_to_parameters([np.zeros(2, np.float32)])
    with Recorder(tmp_path / "deltas", parameters={"w": (2,)}, key=KEY) as recorder:
        verdict = VerdictFile(path, on_exceeded=action)
        strategy = VerdictLegacyStrategy(RecordingLegacyStrategy(_Everybody(), recorder), verdict)
        asked = strategy.configure_fit(1, given, None)
        assert [proxy.cid for proxy, _ in asked] == ["11", "12"]
        results = [(proxy, FitRes(Status(Code.OK, ""), given, 3, {})) for proxy, _ in asked]
        strategy.aggregate_fit(1, results, [])
        write(path, 1, "12")
        if action == "drop":
            assert [proxy.cid for proxy, _ in strategy.configure_fit(2, given, None)] == ["11"]
            return
        with pytest.raises(LimitExceededError):
            strategy.configure_fit(2, given, None)


@pytest.mark.integration
def test_fault_ends_a_simulation_before_the_next_round(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    words = ["attack.py", "watch", str(tmp_path / "deltas"), "--gate", "declared-privacy/findings=0.05"]
    with subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=subprocess.PIPE) as watch:
        try:
            command = [sys.executable, "-m", "tests.flower.watched", str(tmp_path), "--fault", "3", "--rounds", "5"]
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False, timeout=500)
            assert watch.wait(timeout=300) == 3
        finally:
            watch.kill()
    found = json.loads(done.stdout.decode().splitlines()[-1])
    assert [number for number, _ in found["begun"]] == [1, 2, 3], done.stderr.decode()
    assert "findings" in found["why"]
