"""
Audit your own network
======================

With the clients' network and local training, attacks that simulate clients run too, Decaf among them. Both are given by
the auditor as a *learner*, a class of some ten lines. The same with commands: :doc:`/docs/audit/own-network`.
"""

# %%
# Record
# ------
# A network that fedleak does not know, in a training loop that does not use fedleak, with its recorder.

import copy
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from fedleak import audit, show
from fedleak.commands.shared.open_recording import open_recording
from fedleak_recorder import Recorder

work = Path(tempfile.mkdtemp())
torch.manual_seed(0)
random = np.random.default_rng(0)
values, targets = load_digits(return_X_y=True)
images, labels = torch.tensor(values / 16).float(), torch.tensor(targets)
network = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 10))

order = random.permutation(len(labels))
server, free = order[:200], order[200:]  # 200 labelled images that the server has itself
shares = [random.dirichlet(np.full(10, 0.5))[targets[free]] + 1e-6 for _ in range(8)]
parts = [torch.tensor(random.choice(free, 80, replace=False, p=share / share.sum())) for share in shares]


def train(before: dict[str, torch.Tensor], part: torch.Tensor) -> dict[str, torch.Tensor]:
    """Two epochs in batches of 16."""
    network.load_state_dict(before)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(2):
        for batch in part[torch.randperm(len(part))].split(16):
            optimizer.zero_grad()
            functional.cross_entropy(network(images[batch]), labels[batch]).backward()
            optimizer.step()
    return copy.deepcopy(network.state_dict())


auxiliary = {"images": images[server].numpy(), "labels": labels[server].numpy()}
with Recorder(work / "deltas", parameters=network.state_dict(), data="digits", auxiliary=auxiliary) as recorder:
    for number in range(2):
        before = copy.deepcopy(network.state_dict())
        updates = {f"client-{client}": (train(before, part), len(part)) for client, part in enumerate(parts)}
        truth = {
            f"client-{client}": {"class_counts": labels[part].bincount(minlength=10).numpy()}
            for client, part in enumerate(parts)
        }
        recorder.round(number, before, updates, truth=truth)
        mean = {name: torch.stack([own[name] for own, _ in updates.values()]).mean(0) for name in before}
        network.load_state_dict(mean)

# %%
# Without a learner
# -----------------

attacks = ["decaf", "decaf-match", "last-layer-counts", "random-guess"]
without = audit(work / "deltas", attacks, rounds=[0], progress=False)
print(without.results.query("metric == 'l1'")[["attack", "mean", "low", "high", "n"]].to_string(index=False))
print("\nnot run:", "\n".join(f"{name}: {reason}" for name, reason in without.missing.items()))

# %%
# With a learner
# --------------
# ``my_net.py``, in the current folder. On the command line it is named by ``fedleak audit DIR
# --learner my_net.DigitsNet``.

code = """
from torch import nn

from fedleak import LocalTraining, NetworkLearner

LOCAL = LocalTraining(learning_rate=0.1, batch_size=16, epochs=2)


class DigitsNet(NetworkLearner):
    def __init__(self, *, local: LocalTraining = LOCAL, **federation) -> None:
        super().__init__(local=local, **federation)
        self.train_network(nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 10)))
"""
(work / "my_net.py").write_text(code)
sys.path.insert(0, str(work))

recording = open_recording(work / "deltas", "my_net.DigitsNet")
found = audit(recording, attacks, rounds=[0], progress=False)
show(found)

# %%
# ``l1`` is the distance of the inferred class shares from the true ones: 0 is certain, 2 is entirely wrong. Read it
# next to ``random-guess``, which has no update. ``n`` counts clients.
