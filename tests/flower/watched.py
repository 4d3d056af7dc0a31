"""A Flower simulation that reads a verdict before each round: ``python -m tests.flower.watched FOLDER OPTIONS``.

Eight clients clip and noise their updates; from round FAULT on they add no noise. Prints a line of JSON: the rounds
that began and when, and why the training ended. The recording is FOLDER/deltas, the verdict FOLDER/watch/verdict.json.
"""

import argparse
import json
import os
import time
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

from fedleak_recorder import Recorder
from fedleak_recorder.flower import RecordingStrategy
from fedleak_recorder.flower_verdict import VerdictStrategy
from fedleak_recorder.verdict import LimitExceededError, VerdictFile

CLIENTS = 8
SHAPES = {"weight": (20, 30), "bias": (20,)}
RELEASE = {"clip": 1.0, "noise_scale": 0.5, "parameters": [*SHAPES]}


def train(message: Message, fault: int) -> Message:
    """A client that clips its change, and adds noise unless the fault has begun."""
    draws = np.random.default_rng()
    given = {name: array.numpy() for name, array in message.content["arrays"].items()}
    change = {name: draws.normal(size=value.shape) for name, value in given.items()}
    norm = np.sqrt(sum(float(np.square(value).sum()) for value in change.values()))
    silent = int(message.content["config"]["server-round"]) >= fault
    sent = {
        name: (given[name] + 0.8 * value / norm + (0.0 if silent else 0.5) * draws.normal(size=value.shape)).astype("f")
        for name, value in change.items()
    }
    content = RecordDict({"arrays": ArrayRecord({name: Array(value) for name, value in sent.items()})})
    content["metrics"] = MetricRecord({"num-examples": 20})
    return Message(content=content, reply_to=message)


class Timed(FedAvg):
    """FedAvg that keeps when each round begins."""

    def __init__(self) -> None:
        super().__init__(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
        self.begun: list[tuple[int, float]] = []

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Any:
        self.begun.append((server_round, time.perf_counter()))
        return super().configure_train(server_round, arrays, config, grid)


def main() -> None:
    """Runs the simulation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fault", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--missing", default="closed")
    parser.add_argument("--wait", type=float, default=120.0)
    parser.add_argument("--on-exceeded", default="stop")
    options = parser.parse_args()
    folder, strategy = options.folder.resolve(), Timed()
    verdict = VerdictFile(
        folder / "watch/verdict.json",
        on_exceeded=options.on_exceeded,
        missing=options.missing,
        wait_s=options.wait,
    )
    app, server = ClientApp(), ServerApp()
    ended: dict[str, str] = {}

    @app.train()
    def _(message: Message, context: Context) -> Message:
        return train(message, options.fault)

    @server.main()
    def _(grid: Grid, context: Context) -> None:
        first = ArrayRecord({name: Array(np.zeros(shape, np.float32)) for name, shape in SHAPES.items()})
        try:
            with Recorder(folder / "deltas", parameters=SHAPES, releases=[RELEASE]) as recorder:
                watched = VerdictStrategy(RecordingStrategy(strategy, recorder), verdict)
                watched.start(grid=grid, initial_arrays=first, num_rounds=options.rounds)
        except LimitExceededError as error:
            ended["why"] = str(error)

    resources = {"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2, "include_dashboard": False}}
    run_simulation(server_app=server, client_app=app, num_supernodes=CLIENTS, backend_config=resources)
    print(json.dumps({"begun": strategy.begun, "why": ended.get("why", "")}))


if __name__ == "__main__":
    main()
