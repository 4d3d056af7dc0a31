"""Makes `image_matching.npz`: objectives of breaching and their gradients on drawn data.

Run as ``python -m tests.golden.make_image_matching FOLDER``; FOLDER holds the files of the wheel breaching 0.1.2.
"""

import argparse
import importlib
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tests.golden.image_matching import CASES, PATH, Case, clients

PROVENANCE = """breaching 0.1.2 (J. Geiping, MIT licence, https://github.com/JonasGeiping/breaching), unchanged: \
attacks/auxiliaries/objectives.py (Euclidean, CosineSimilarity, of one gradient or of several local steps) and \
regularizers.py (TotalVariation), in float64, on drawn networks and images."""


class _Standardised(nn.Module):
    """The network on images ``0.5 + 0.25 z``."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(0.5 + 0.25 * images)
        return logits


def _auxiliaries(folder: Path) -> tuple[Any, Any]:
    """Two modules of breaching, without the start of the package, which imports what they do not need."""
    for name in ("breaching", "breaching.attacks", "breaching.attacks.auxiliaries"):
        package = types.ModuleType(name)
        package.__path__ = [str(folder.joinpath(*name.split(".")))]
        sys.modules[name] = package
    found = [importlib.import_module(f"breaching.attacks.auxiliaries.{n}") for n in ("objectives", "regularizers")]
    return found[0], found[1]


def _case(case: Case, number: int, folder: Path) -> dict[str, Tensor]:
    objectives, regularizers = _auxiliaries(folder)
    draws = torch.Generator().manual_seed(number)
    network = clients(case).template.double()
    for parameter in network.parameters():
        parameter.data = torch.randn(parameter.shape, generator=draws, dtype=torch.float64) * 0.3
    model = _Standardised(network)
    true, images = (torch.randn(4, 3, 8, 8, generator=draws, dtype=torch.float64) for _ in range(2))
    labels = torch.tensor(case.labels)
    steps: dict[str, Any] | None = None
    if case.local.batch_size is not None:
        rows = case.batches.tolist()
        steps = {"steps": len(rows), "data_per_step": len(rows[0]), "lr": case.local.learning_rate}
        steps["labels"] = [labels[row] for row in rows]
    kind = objectives.CosineSimilarity if case.objective == "cosine" else objectives.Euclidean
    objective = kind()
    objective.initialize(cross_entropy, types.SimpleNamespace(mixed_precision=False), steps)
    received = [value.detach() for value in objective._grad_fn(model, true, labels)[0]]
    images.requires_grad_()
    loss = objective(model, received, images, labels)[0].sum()
    if case.total_variation:
        setup = {"dtype": torch.float64, "device": torch.device("cpu")}
        loss = loss + regularizers.TotalVariation(setup, scale=case.total_variation, eps=0.0)(images)
    loss.backward()
    assert images.grad is not None
    names = [name for name, _ in network.named_parameters()]
    return {
        **{f"model/{name}": value.detach() for name, value in network.named_parameters()},
        **{f"received/{name}": value for name, value in zip(names, received, strict=True)},
        "images": images.detach(),
        "loss": loss.detach(),
        "gradient": images.grad,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    arrays: dict[str, np.ndarray[Any, Any]] = {
        f"{number}/{name}": value.numpy()
        for number, case in enumerate(CASES)
        for name, value in _case(case, number, folder).items()
    }
    arrays["provenance"] = np.array(PROVENANCE)
    np.savez_compressed(PATH, **arrays)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
