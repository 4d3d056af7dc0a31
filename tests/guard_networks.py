"""A site with records and a small network of PyTorch, for tests of the guard's checks of received models."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from fedleak_guard.thresholds import Thresholds, tensors_of
from fedleak_recorder.arrays import Array

UNITS, WIDTH, CLASSES, RECORDS = 60, 40, 4, 12


def network() -> nn.Sequential:
    """With initial weights that PyTorch draws; a policy names it as ``tests.guard_networks:network``."""
    return nn.Sequential(nn.Linear(WIDTH, UNITS), nn.ReLU(), nn.Linear(UNITS, CLASSES))


def records(seed: int = 0) -> tuple[Array, Array]:
    draws = np.random.default_rng(seed)
    return draws.random((RECORDS, WIDTH), np.float32), draws.integers(CLASSES, size=RECORDS)


def initial(seed: int = 0) -> dict[str, Array]:
    """A model that is drawn."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return {name: value.detach().numpy().copy() for name, value in network().named_parameters()}


def stepped(model: Mapping[str, Array], seed: int, size: float = 1e-3) -> dict[str, Array]:
    """A model after a small honest step."""
    draws = np.random.default_rng(seed)
    return {name: np.asarray(value + size * draws.normal(size=value.shape), "f") for name, value in model.items()}


def update(seed: int, size: float = 1e-3) -> dict[str, Array]:
    """A client's own update of the size of `stepped`."""
    draws = np.random.default_rng(1000 + seed)
    return {name: np.asarray(size * draws.normal(size=value.shape), "f") for name, value in initial().items()}


def suppressed(model: Mapping[str, Array]) -> dict[str, Array]:
    """A model with units that nothing excites."""
    return {**model, "0.bias": model["0.bias"] - np.float32(100)}


def policy(folder: Path, received: str, more: str = "") -> Path:
    """A site's policy with its records and network."""
    inputs, labels = records()
    np.savez(folder / "own.npz", records=inputs, labels=labels)
    path = folder / "policy.yaml"
    path.write_text(
        f"format: 1\nevidence: {folder}/evidence\ntensors: [{{name: '*'}}]\nfindings: {{own-records: log}}\n"
        f"own: {{data: {folder}/own.npz, network: 'tests.guard_networks:network'}}\nreceived: {received}\n{more}"
    )
    return path


def thresholds(limits: Mapping[str, float], **changes: Any) -> Thresholds:
    given: dict[str, Any] = {"false_positives": 0.04, "values": 200, "source": "a test", "records": RECORDS}
    return Thresholds(**{**given, "tensors": tensors_of(initial()), "thresholds": limits, **changes})
