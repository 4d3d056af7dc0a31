"""
Record a Flower run
===================

The recorder is a package of its own, ``fedleak_recorder``, with two dependencies (NumPy and safetensors). It runs where
your server runs, and fedleak reads the recording later.
"""

# %%
# Flower
# ------
# Wrap the strategy; all its decisions stay with it. Flower is not needed to build this page, so these lines are text:
#
# .. code-block:: python
#
#     from fedleak_recorder import Recorder
#     from fedleak_recorder.flower import RecordingStrategy
#
#     @app.main()
#     def main(grid, context):
#         network = Network()
#         with Recorder("/data/audit/deltas", parameters=network.state_dict(), data="digits") as recorder:
#             strategy = RecordingStrategy(FedAvg(), recorder, truth=["class_counts"])
#             strategy.start(grid=grid, initial_arrays=ArrayRecord(network.state_dict()), num_rounds=3)
#
# ``truth`` names metrics that the clients add to their replies during an audit, next to ``num-examples``; leave it out
# where you have none. Strategies of ``flwr.server.strategy`` take ``RecordingLegacyStrategy``. See
# :doc:`/docs/audit/record-your-system`, also for NVFlare.
#
# The same without Flower
# -----------------------
# What the wrapper does is this loop: before each round the global model, after it what each client sent.

import copy
import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from fedleak import audit, show
from fedleak_recorder import Recorder

torch.manual_seed(0)
values, targets = load_digits(return_X_y=True)
images, labels = torch.tensor(values / 16).float(), torch.tensor(targets)
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
clients = {f"hospital-{digit}": (labels % 5 == digit).nonzero().flatten()[:100] for digit in range(5)}
clients["hospital-5"] = torch.arange(100)
counts = {name: labels[part].bincount(minlength=10) for name, part in clients.items()}


def train(before: dict[str, torch.Tensor], part: torch.Tensor) -> tuple[dict[str, torch.Tensor], int]:
    """The client's model after two epochs, and its number of examples."""
    model.load_state_dict(before)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for batch in [*part[torch.randperm(len(part))].split(20), *part[torch.randperm(len(part))].split(20)]:
        optimizer.zero_grad()
        functional.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()
    return copy.deepcopy(model.state_dict()), len(part)


folder = Path(tempfile.mkdtemp()) / "deltas"
with Recorder(folder, parameters=model.state_dict(), data="digits") as recorder:
    for number in range(3):
        before = copy.deepcopy(model.state_dict())
        updates = {name: train(before, part) for name, part in clients.items()}
        recorder.round(number, before, updates, truth={name: {"class_counts": counts[name]} for name in clients})
        model.load_state_dict({key: torch.stack([own[key] for own, _ in updates.values()]).mean(0) for key in before})

# %%
# What is on the disk
# -------------------
# A round is whole on the disk when ``round`` returns, also if the server is killed later; the end of the ``with``
# block notes that no round is missing. Clients appear under pseudonyms; the key that gives them is ``recorder.key``,
# and in no file.

for path in sorted(folder.rglob("*")):
    if path.is_file():
        print(f"{path.stat().st_size:7} bytes  {path.relative_to(folder)}")

# %%
# Audit it
# --------
# ``truth/`` is a folder of its own, which only the scores open. ``fedleak publish DIR --out COPY``
# writes a copy without it, to pass on.

show(audit(folder, progress=False))

# %%
# The classes of five of these hospitals do not overlap, so the updates show them and link the rounds. For attacks that
# simulate clients, give the audit a learner: :ref:`sphx_glr_docs_generated_tutorials_audit_own_network.py`.
