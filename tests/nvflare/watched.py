"""A job of NVFlare's simulator that reads a verdict before each round: ``python -m tests.nvflare.watched FOLDER``.

Eight clients clip and noise their updates; from round FAULT on they add no noise. The rounds that start are written to
FOLDER/started.jsonl, the recording to FOLDER/deltas; the verdict is FOLDER/watch/verdict.json.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.workflows.fedavg import FedAvg
from nvflare.client.config import ExchangeFormat, TransferType
from nvflare.job_config.api import FedJob
from nvflare.job_config.script_runner import FrameworkType, ScriptRunner

from fedleak_recorder.nvflare import RoundRecorder
from fedleak_recorder.nvflare_verdict import DropsClients, RoundVerdict

CLIENTS = 8
SHAPES = {"weight": (20, 30), "bias": (20,)}
RELEASE = {"clip": 1.0, "noise_scale": 0.5, "parameters": [*SHAPES]}


class DroppingFedAvg(DropsClients, FedAvg):
    """FedAvg that leaves out clients that a verdict drops."""


class Started(FLComponent):
    """Writes which clients get the task of which round."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type != EventType.BEFORE_TASK_DATA_FILTER:
            return
        number = fl_ctx.get_prop(FLContextKey.TASK_DATA).get_header(AppConstants.CURRENT_ROUND)
        line = {"round": number, "client": fl_ctx.get_peer_context().get_identity_name(), "time": time.time()}
        with Path(self.file).open("a") as file:
            file.write(json.dumps(line) + "\n")


def main() -> None:
    """Runs the job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fault", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--missing", default="closed")
    parser.add_argument("--wait", type=float, default=120.0)
    parser.add_argument("--on-exceeded", default="stop")
    options = parser.parse_args()
    folder = options.folder.resolve()
    job = FedJob(name="watched", min_clients=1)
    first = {name: np.zeros(shape, np.float32).tolist() for name, shape in SHAPES.items()}
    controller = {"num_clients": CLIENTS, "num_rounds": options.rounds, "model": first}
    job.to_server(DroppingFedAvg(**controller, persistor_id="", save_filename=""))
    job.to_server(RoundRecorder(str(folder / "deltas"), data="my data", releases=[RELEASE]), id="recorder")
    verdict = str(folder / "watch/verdict.json")
    job.to_server(
        RoundVerdict(verdict, on_exceeded=options.on_exceeded, missing=options.missing, wait_s=options.wait),
        id="verdict",
    )
    job.to_server(Started(str(folder / "started.jsonl")), id="started")
    for number in range(CLIENTS):
        runner = ScriptRunner(
            script=str(Path(__file__).with_name("watched_client.py")),
            script_args=f"--fault {options.fault}",
            framework=FrameworkType.NUMPY,
            server_expected_format=ExchangeFormat.NUMPY,
            params_transfer_type=TransferType.FULL,
        )
        job.to(runner, f"site-{number + 1}")
    job.simulator_run(str(folder / "workspace"))


if __name__ == "__main__":
    main()
