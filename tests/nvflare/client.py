"""Clients of the test job: least squares on data of their own; each keeps its own deltas for the comparison.

Plain NVFlare: it imports neither fedleak nor the recorder.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import nvflare.client as flare
from nvflare.apis.dxo import MetaKey
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

STEPS, RATE = 5, np.float32(0.1)


def data_of(site: str) -> tuple[np.ndarray, np.ndarray]:
    """Examples ``(N, 3)`` and classes ``(N,)`` of a client."""
    draws = np.random.default_rng(sum(site.encode()))
    size = 10 + int(draws.integers(20))
    return draws.normal(size=(size, 3)).astype(np.float32), draws.integers(0, 2, size)


def train(weight: np.ndarray, bias: np.ndarray, examples: np.ndarray, classes: np.ndarray) -> list[np.ndarray]:
    """Local training from the global model."""
    wanted = np.eye(2, dtype=np.float32)[classes]
    for _ in range(STEPS):
        error = (examples @ weight.T + bias - wanted) / np.float32(len(classes))
        weight, bias = weight - RATE * (error.T @ examples), bias - RATE * error.sum(0)
    return [weight, bias]


def main() -> None:
    """Trains in every round."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kept")
    parser.add_argument("--differences", action="store_true")
    options = parser.parse_args()
    flare.init()
    site = flare.get_site_name()
    examples, classes = data_of(site)
    while flare.is_running():
        given = flare.receive()
        before = [np.asarray(given.params[name]) for name in ("weight", "bias")]
        after = train(before[0], before[1], examples, classes)
        deltas = {name: own - start for name, own, start in zip(("weight", "bias"), after, before, strict=True)}
        counts = np.bincount(classes, minlength=2).tolist()
        kept = {"deltas": {name: value.tolist() for name, value in deltas.items()}, "class_counts": counts}
        Path(options.kept, f"{site}-{given.current_round}.json").write_text(json.dumps(kept))
        params = deltas if options.differences else dict(zip(("weight", "bias"), after, strict=True))
        kind = ParamsType.DIFF if options.differences else ParamsType.FULL
        meta = {MetaKey.NUM_STEPS_CURRENT_ROUND: STEPS, "num_examples": len(classes), "class_counts": counts}
        flare.send(FLModel(params=params, params_type=kind, meta=meta))


if __name__ == "__main__":
    main()
