"""A job of NVFlare's simulator whose sites have a guard: ``python -m tests.nvflare.guarded FOLDER FAULT``.

The privacy.json of the sites is that of docs/site/guard.md. NVFlare's simulator applies the components of a
privacy.json and not its filters, so the job names the filter too. What arrives at the server is written to
``arrived.jsonl``.

FAULT is ``none``; ``no-filter``, ``no-watch`` and ``no-guard`` for sites without the filter, without the component and
without both; ``job-filter`` for a filter of the job that adds a number after the check; ``model`` for a
first model with other values; or a fault of `tests.nvflare.guarded_client`.
"""

import json
import sys
from pathlib import Path

import numpy as np
from nvflare.apis.dxo import DXO, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import Filter
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.workflows.fedavg import FedAvg
from nvflare.client.config import ExchangeFormat, TransferType
from nvflare.job_config.api import FedJob
from nvflare.job_config.defs import FilterType
from nvflare.job_config.script_runner import FrameworkType, ScriptRunner

from fedleak_guard.message import tensors_hash
from fedleak_guard.nvflare import EgressCheck

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
own: {{data: {folder}/own.npz}}
"""


class Arrived(FLComponent):
    """Writes what the server receives."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        result = fl_ctx.get_prop(FLContextKey.TASK_RESULT)
        if event_type != EventType.BEFORE_TASK_RESULT_FILTER or not isinstance(result, Shareable):
            return
        held = from_shareable(result) if "DXO" in result else DXO("METRICS", {"x": 0}, {})
        line = {"code": result.get_return_code(), "data": "DXO" in result, "meta": sorted(held.meta or {})}
        line |= {"names": sorted(held.data) if "DXO" in result else []}
        with Path(self.file).open("a") as file:
            file.write(json.dumps(line) + "\n")


class Adds(Filter):
    """A filter of the job that adds a number to the result, after the site's filters."""

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        dxo = from_shareable(shareable)
        dxo.data["layer.bias"] = dxo.data["layer.bias"] + 1
        return dxo.update_shareable(shareable)


def main() -> None:
    """Runs the job."""
    folder, fault = Path(sys.argv[1]).resolve(), sys.argv[2]
    local = folder / "workspace/local"
    local.mkdir(parents=True)
    (folder / "policy.yaml").write_text(POLICY.format(folder=folder, hash=tensors_hash(FIRST)))
    draws = np.random.default_rng(0)
    np.savez(folder / "own.npz", records=draws.random((20, 300), np.float32), labels=draws.integers(2, size=20))
    page = (Path(__file__).resolve().parents[2] / "docs/site/guard.md").read_text(encoding="utf-8")
    privacy = json.loads(
        page.split("```json\n")[1].split("```")[0].replace("/etc/fedleak/policy.yaml", str(folder / "policy.yaml"))
    )
    if fault in ("no-watch", "no-guard"):
        privacy["components"] = []
    (local / "privacy.json").write_text(json.dumps(privacy))
    first = {name: (value + (fault == "model")).tolist() for name, value in FIRST.items()}
    job = FedJob(name="guarded", min_clients=2)
    job.to_server(FedAvg(num_clients=2, num_rounds=2, model=first, persistor_id="", save_filename=""))
    job.to_server(Arrived(str(folder / "arrived.jsonl")))
    for site in ("site-1", "site-2"):
        runner = ScriptRunner(
            script=str(Path(__file__).with_name("guarded_client.py")),
            script_args=f"--fault {fault}",
            framework=FrameworkType.NUMPY,
            server_expected_format=ExchangeFormat.NUMPY,
            params_transfer_type=TransferType.FULL,
        )
        job.to(runner, site)
        if fault not in ("no-filter", "no-guard"):
            check = EgressCheck(str(folder / "policy.yaml"))
            job.to(check, site, filter_type=FilterType.TASK_RESULT, tasks=["train"])
        if fault == "job-filter":
            from tests.nvflare.guarded import Adds as JobFilter  # not of __main__, whose name no site can import

            job.to(JobFilter(), site, filter_type=FilterType.TASK_RESULT, tasks=["train"])
    job.simulator_run(str(folder / "workspace"))


if __name__ == "__main__":
    main()
