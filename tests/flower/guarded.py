"""A Flower simulation whose clients have a guard: ``python -m tests.flower.guarded FOLDER FAULT``.

What arrives at the server is written to ``arrived.jsonl``. FAULT is ``none``, ``no-policy``, ``model`` for a first
model with other values, or a fault of the clients: ``dp-off`` (no noise), ``per-person`` (a loss for each example),
``tensor`` (one that the model has not), ``text`` (a configuration), ``raises``.
"""

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from fedleak_guard.flower import egress_mod
from fedleak_guard.message import tensors_hash

FIRST = {"layer.weight": np.zeros((2, 300), np.float32), "layer.bias": np.zeros(2, np.float32)}
POLICY = """\
format: 1
evidence: {folder}/evidence
tensors:
  - {{name: layer.weight, shape: [2, 300], dtype: float32}}
  - {{name: layer.bias, shape: [2], dtype: float32}}
update: {{min_examples: 10}}
received: {{first_round: [{hash}]}}
metrics: {{names: [loss]}}
privacy: {{clip: 1.0, noise: 0.5}}
budget: {{job_rounds: 100}}
"""


def train(message: Message, fault: str) -> Message:
    """A client that clips its change, adds noise, and reports a loss, unless it has a fault."""
    if fault == "raises":
        raise RuntimeError("patient 7")
    draws = np.random.default_rng()
    (record,) = message.content.array_records.values()
    given = {name: array.numpy() for name, array in record.items()}
    change = {name: draws.normal(size=value.shape) for name, value in given.items()}
    norm = np.sqrt(sum(float(np.square(value).sum()) for value in change.values()))
    noise = 0.0 if fault == "dp-off" else 0.5
    params = {
        name: (given[name] + value / norm + noise * draws.normal(size=value.shape)).astype("f")
        for name, value in change.items()
    }
    if fault == "tensor":
        params["extra"] = np.ones(3, np.float32)
    losses = draws.random(20)
    told: dict[str, Any] = {"loss": losses.tolist() if fault == "per-person" else float(losses.mean())}
    content = RecordDict({"arrays": ArrayRecord({name: Array(value) for name, value in params.items()})})
    content["metrics"] = MetricRecord({"num-examples": 20, **told})
    if fault == "text":
        content["config"] = ConfigRecord({"note": "patient 7"})
    return Message(content=content, reply_to=message)


def own_data(message: Message, context: Context) -> dict[str, Any]:
    """The client's records, for the attacks on its own message."""
    draws = np.random.default_rng(context.node_id)
    return {"records": draws.random((20, 300), np.float32), "labels": draws.integers(2, size=20)}


class Arrived(FedAvg):
    """FedAvg that writes what the server receives."""

    def __init__(self, file: Path) -> None:
        super().__init__(fraction_evaluate=0.0, min_train_nodes=2, min_available_nodes=2)
        self.file = file

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        received = list(replies)
        with self.file.open("a") as file:
            for reply in received:
                line = {"error": reply.error.reason if reply.has_error() else None}
                line |= {"names": [] if reply.has_error() else sorted(reply.content)}
                file.write(json.dumps(line) + "\n")
        return super().aggregate_train(server_round, received)


def main() -> None:
    """Runs the simulation."""
    folder, fault = Path(sys.argv[1]).resolve(), sys.argv[2]
    policy = folder / "policy.yaml"
    if fault != "no-policy":
        policy.write_text(POLICY.format(folder=folder, hash=tensors_hash(FIRST)))
    app = ClientApp(mods=[egress_mod(str(policy), own_data=own_data)])

    @app.train()
    def _(message: Message, context: Context) -> Message:
        return train(message, fault)

    server = ServerApp()

    @server.main()
    def _(grid: Grid, context: Context) -> None:
        first = ArrayRecord({name: Array(value + np.float32(fault == "model")) for name, value in FIRST.items()})
        Arrived(folder / "arrived.jsonl").start(grid=grid, initial_arrays=first, num_rounds=2)

    resources = {"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2, "include_dashboard": False}}
    run_simulation(server_app=server, client_app=app, num_supernodes=2, backend_config=resources)


if __name__ == "__main__":
    main()
