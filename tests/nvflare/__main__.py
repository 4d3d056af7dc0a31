"""A job of NVFlare's simulator that is recorded: ``python -m tests.nvflare OUT KEPT KIND``, apart from pytest.

The component is that of docs/audit/record-your-system.md.

KIND is ``models`` or ``differences`` (what clients send), ``adapters`` for clients that send those of a transformer, or
``wrong`` for a recorder that asks for what nobody sends.
"""

import re
import sys
from pathlib import Path

import numpy as np
from nvflare.app_common.workflows.fedavg import FedAvg
from nvflare.client.config import ExchangeFormat, TransferType
from nvflare.job_config.api import FedJob
from nvflare.job_config.script_runner import FrameworkType, ScriptRunner

out, kept, kind = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
first = {"weight": np.zeros((2, 3), np.float32).tolist(), "bias": np.zeros(2, np.float32).tolist()}
script, truth, arguments = "client.py", "class_counts", f"--kept {kept}"
if kind == "adapters":
    from tests.adapter_clients import network, save_base, state_of

    base = Path(kept) / "base"
    save_base(base)
    first = {f"model.{name}": value.tolist() for name, value in state_of(network(base)).items()}
    script, truth, arguments = "adapter_client.py", 'words", "read_words', f"{arguments} --base {base}"
elif kind == "wrong":
    truth = "age"
job = FedJob(name="recorded", min_clients=3)
job.to_server(FedAvg(num_clients=3, num_rounds=2, model=first, persistor_id="", save_filename=""))
page = (Path(__file__).resolve().parents[2] / "docs/audit/record-your-system.md").read_text(encoding="utf-8")
examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
(example,) = (one.replace("runs/mine/deltas", str(out)) for one in examples if "fedleak_recorder.nvflare" in one)
exec(compile(example.replace("class_counts", truth), "page", "exec"), {"job": job})
arguments += " --differences" if kind == "differences" else ""
for number in range(3):
    runner = ScriptRunner(
        script=str(Path(__file__).with_name(script)),
        script_args=arguments,
        framework=FrameworkType.NUMPY,
        server_expected_format=ExchangeFormat.NUMPY,
        params_transfer_type=TransferType.FULL,
    )
    job.to(runner, f"site-{number + 1}")
job.simulator_run(str(Path(kept) / "workspace"))
