"""Recordings that grow, of clients that declare noise; from some round on they send none."""

from pathlib import Path

import numpy as np

from fedleak_recorder import Recorder

SHAPES = {"weight": (20, 30), "bias": (20,)}
RELEASE = {"clip": 1.0, "noise_scale": 0.5, "parameters": [*SHAPES]}
LIMIT = "declared-privacy/findings=0.05"
KEY = bytes(range(16))


def recorder(folder: Path, **options: object) -> Recorder:
    """A recorder of such clients."""
    return Recorder(folder, parameters=SHAPES, releases=[RELEASE], holds="deltas", key=KEY, **options)  # type: ignore[arg-type]


def write_round(recorder: Recorder, number: int, *, silent: bool = False, clients: int = 8) -> None:
    """Records a round of clients of which none adds noise, or all do."""
    draws = np.random.default_rng([number, 1])
    model = {name: draws.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
    updates = {}
    for client in range(clients):
        update = {name: draws.normal(size=shape) for name, shape in SHAPES.items()}
        norm = np.sqrt(sum(float(np.square(value).sum()) for value in update.values()))
        noise = 0.0 if silent else 0.5
        sent = {
            name: (value / norm * 0.8 + noise * draws.normal(size=value.shape)).astype(np.float32)
            for name, value in update.items()
        }
        updates[f"client {client}"] = (sent, 10)
    recorder.round(number, model, updates)
