"""Common to all simulators: a job read from files, and the exchange with the measuring process. Needs only numpy."""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]
Weights = dict[str, Array]


@dataclass(frozen=True)
class Plan:
    """The sizes of a job.

    Attributes:
        name: the job.
        kind: ``images`` or ``interactions``.
        optimizer: the clients' optimizer, ``sgd`` or ``adam``.
        learning_rate: its learning rate.
        epochs: passes over a client's examples in a round.
        batch_size: examples in a batch, None for all of them.
        classes: classes of images.
        flops: floating-point operations of one round, counted as 2 per multiplication with its addition, in the
            layers' matrix products and convolutions alone.
    """

    name: str
    kind: str
    optimizer: str
    learning_rate: float
    epochs: int
    batch_size: int | None
    classes: int
    flops: float


class Job:
    """A job read from a folder, its arrays mapped into memory.

    Args:
        folder: where it lies.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan = Plan(**json.loads((folder / "plan.json").read_text(encoding="utf-8")))
        arrays = {path.stem: np.load(path, mmap_mode="r") for path in sorted(folder.glob("*.npy"))}
        self.cohorts: Array = arrays["cohorts"]
        """``(rounds, C)`` clients of every round."""
        self.counts: Array = arrays["counts"]
        """``(K,)`` examples of every client."""
        self.arrays = arrays
        self.weights: Weights = {p.stem: np.load(p) for p in sorted((folder / "weights").glob("*.npy"))}

    def images(self, number: int, place: int) -> tuple[Array, Array]:
        """Images ``(N, c, h, w)`` and labels ``(N,)`` of a round's client, in the order in which it trains on them."""
        client, order = int(self.cohorts[number, place]), self.arrays["order"][number, place]
        return np.ascontiguousarray(self.arrays["images"][client][order]), np.asarray(
            self.arrays["labels"][client][order]
        )

    def pairs(self, client: int) -> tuple[Array, Array]:
        """Items ``(N,)`` and labels ``(N,)`` of a client."""
        count = int(self.counts[client])
        return np.array(self.arrays["items"][client, :count]), np.array(self.arrays["labels"][client, :count])


def save_job(folder: Path, plan: Plan, arrays: dict[str, Array], weights: Weights) -> None:
    """Writes a job so that `Job` reads it."""
    (folder / "weights").mkdir(parents=True, exist_ok=True)
    for name, value in arrays.items():
        np.save(folder / f"{name}.npy", value)
    for name, value in weights.items():
        np.save(folder / "weights" / f"{name}.npy", value)
    numbers = {field.name: getattr(plan, field.name) for field in fields(plan)}
    (folder / "plan.json").write_text(json.dumps(numbers), encoding="utf-8")


class Host:
    """The simulator's side of the exchange: it waits for a request to run a round, and reports how long it took.

    Args:
        weights: gives the global model as it is.
    """

    def __init__(self, weights: Callable[[], Weights]) -> None:
        self.weights = weights
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        # Libraries' output goes to stderr.
        os.dup2(2, 1)
        self._start = 0.0

    def wait(self) -> bool:
        """Returns True when a round is to run, False at the end."""
        for line in sys.stdin:
            word, _, rest = line.strip().partition(" ")
            if word == "round":
                self._start = time.perf_counter()
                return True
            if word == "weights":
                np.savez(rest, **self.weights())  # type: ignore[arg-type]
                self._say("saved")
            else:
                break
        return False

    def done(self) -> None:
        """Reports the seconds of the round."""
        self._say(str(time.perf_counter() - self._start))

    def _say(self, word: str) -> None:
        print(word, file=self._out, flush=True)


def job_folder() -> Path:
    """The job's folder, given to the simulator at its start."""
    return Path(sys.argv[1])
