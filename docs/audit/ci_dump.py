"""A federated training that writes a dump for ``fedleak convert``: plain PyTorch and NumPy, nothing of fedleak.

An example to replace with your own training: twelve clients train a network on handwritten digits for two rounds, and
each adds noise to its update. ``python ci_dump.py FOLDER [SIGMA]`` writes FOLDER/manifest.yaml and its arrays; SIGMA is
the standard deviation of the noise.
"""

import copy
import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
import yaml
from sklearn.datasets import load_digits
from torch import nn

CLIENTS, ROUNDS, EXAMPLES, CLIP = 12, 2, 96, 1.0
LOCAL = {"optimizer": "sgd", "learning_rate": 0.1, "batch_size": 12, "epochs": 1}


def train(network: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> None:
    """One epoch of stochastic gradient descent."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for batch in torch.split(torch.randperm(len(labels)), 12):
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(network(images[batch]), labels[batch]))
        optimizer.step()


def save(path: Path, arrays: dict[str, torch.Tensor]) -> str:
    """Writes arrays and returns the name of the file."""
    np.savez(path, allow_pickle=False, **{name: value.numpy() for name, value in arrays.items()})
    return path.name


def main(folder: Path, sigma: float) -> None:
    """Trains the clients, writes what the server receives, and describes it."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(data.target)
    known, private = torch.split(torch.randperm(len(labels)), [200, len(labels) - 200])
    # Each client has three of the ten digits.
    own = [torch.randperm(10)[:3] for _ in range(CLIENTS)]
    parts = [private[torch.isin(labels[private], digits)] for digits in own]
    parts = [part[torch.randperm(len(part))[:EXAMPLES]] for part in parts]
    convolutions = [nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.MaxPool2d(2)]
    body = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(16, 32), nn.ReLU())
    network = nn.Sequential(OrderedDict(body=body, output=nn.Linear(32, 10)))
    rounds = []
    for number in range(ROUNDS):
        model = {name: value.detach().clone() for name, value in network.named_parameters()}
        sums, clients = {name: torch.zeros_like(value) for name, value in model.items()}, []
        for client, part in enumerate(parts):
            local = copy.deepcopy(network)
            train(local, images[part], labels[part])
            delta = {name: value.detach() - model[name] for name, value in local.named_parameters()}
            norm = torch.stack([value.norm() for value in delta.values()]).norm()
            for name, value in delta.items():
                noise = sigma * torch.randn_like(value)
                delta[name] = value * min(1.0, CLIP / float(norm)) + noise if sigma else value
                sums[name] += delta[name] / CLIENTS
            counts = torch.bincount(labels[part], minlength=10).tolist()
            file = save(folder / f"{number}-{client}.npz", delta)
            sent = {"client": f"phone-{client}", "examples": len(part), "file": file}
            clients.append({**sent, "truth": {"class_counts": counts}})
        rounds.append({"round": number, "model": save(folder / f"{number}.npz", model), "clients": clients})
        with torch.no_grad():
            for name, value in network.named_parameters():
                value.add_(sums[name])
    save(folder / "auxiliary.npz", {"images": images[known], "labels": labels[known]})
    names = list(model)
    manifest = {
        "format": 1,
        "system": {"name": "example of fedleak", "version": "1"},
        "data": {"name": "digits"},
        "holds": "deltas",
        "parameters": {name: list(value.shape) for name, value in model.items()},
        "learner": {
            "name": "classifier",
            "arguments": {
                "network": {"name": "two-convolutions", "hidden": 32, "channels": 8},
                "image_shape": [1, 8, 8],
                "num_classes": 10,
                "local": LOCAL,
            },
        },
        "releases": [{"clip": CLIP, "noise_scale": sigma, "parameters": names}] if sigma else [],
        "auxiliary": "auxiliary.npz",
        "rounds": rounds,
    }
    (folder / "manifest.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.1)
