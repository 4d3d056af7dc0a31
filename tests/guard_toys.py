"""A site with a policy, and messages of a small model, for tests of the guard."""

from pathlib import Path
from typing import Any

import numpy as np

from fedleak_guard import Guard, Message
from fedleak_recorder.arrays import Array

SHAPES = {"weight": (4, 300), "bias": (4,)}
POLICY = """\
format: 1
evidence: {folder}/evidence
tensors:
  - {{name: weight, shape: [4, 300], dtype: float32}}
  - {{name: bias, dtype: float32}}
"""


def write_policy(folder: Path, more: str = "") -> Path:
    """A policy of the small model with further keys."""
    path = folder / "policy.yaml"
    path.write_text(POLICY.format(folder=folder) + more)
    return path


def site(folder: Path, more: str = "", **options: Any) -> Guard:
    """The guard of a site."""
    return Guard(write_policy(folder, more), **options)


def log_of(folder: Path) -> Path:
    return folder / "evidence/log.jsonl"


def model(seed: int = 0) -> dict[str, Array]:
    draws = np.random.default_rng(seed)
    return {name: draws.normal(size=shape).astype("f") for name, shape in SHAPES.items()}


def update(seed: int = 1, *, norm: float = 1.0, noise: float = 0.0) -> dict[str, Array]:
    """An update of a given L2 norm, with Gaussian noise."""
    draws = np.random.default_rng(seed)
    values = {name: draws.normal(size=shape) for name, shape in SHAPES.items()}
    size = np.sqrt(sum(float(np.square(value).sum()) for value in values.values()))
    return {
        name: (norm / size * value + noise * draws.normal(size=value.shape)).astype("f")
        for name, value in values.items()
    }


def message(number: int = 0, **changes: Any) -> Message:
    """A message that the site's policy allows."""
    given: dict[str, Any] = {"job": "job", "round": number, "sent": update(number + 1), "received": model()}
    return Message(**{**given, **changes})
