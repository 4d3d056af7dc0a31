"""Runs simulators in turns on one job, each in a process of its own, and checks that they train the same model."""

import os
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from bench.jobs import write_job
from bench.matmul import measured_peak
from bench.peers.protocol import Job, Weights
from bench.process import ROOT, AnsweringProcess

CORES = os.cpu_count() or 1


@dataclass(frozen=True)
class DescentAlgorithm:
    """A simulator to measure.

    Attributes:
        name: its name in tables.
        module: what runs it.
        python: the interpreter of its environment.
        threads: threads of each of its processes, None for as many as there are cores.
        launcher: what starts the module, after the interpreter.
        tolerance: how far its global model may be from the exact one after two rounds, as a share of the movement,
            where the plain loop is not half as far itself.
        arguments: arguments of the module after the job's folder.
    """

    name: str
    module: str
    python: Path = Path(sys.executable)
    threads: int | None = None
    launcher: tuple[str, ...] = ("-m",)
    tolerance: float = 1e-4
    arguments: tuple[str, ...] = ()


_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={CORES}", "-m")
OURS = [
    DescentAlgorithm(f"ours, {CORES} threads", "bench.peers.ours"),
    DescentAlgorithm(f"ours, {CORES} processes", "bench.peers.ours", threads=1, launcher=_TORCHRUN),
]
PLAIN = DescentAlgorithm("plain loop", "bench.peers.plain")
_EXACT = DescentAlgorithm("plain loop in float64", "bench.peers.plain", arguments=("float64",))


def _python(name: str) -> Path:
    return ROOT / ".peers" / name / "bin" / "python"


PEERS = [
    DescentAlgorithm(f"pfl, {CORES} processes", "bench.peers.pfl", _python("pfl"), 1, _TORCHRUN),
    DescentAlgorithm("fedjax, jit", "bench.peers.fedjax", _python("fedjax")),
    # Flower averages models, not their changes, in float32, so rounding is visible if a round changes little.
    DescentAlgorithm(f"Flower, {CORES} actors", "bench.peers.flower", _python("flower"), 1, tolerance=2e-3),
]


@dataclass(frozen=True)
class Result:
    """Measurements of one simulator on one job.

    Attributes:
        name: the simulator.
        seconds: of each measured round.
        gap: distance from the exact global model after two rounds, as a share of its movement.
        share: of the machine's measured matrix-multiply peak.
    """

    name: str
    seconds: list[float]
    gap: float
    share: float

    @property
    def median(self) -> float:
        """Median seconds of a round."""
        return statistics.median(self.seconds)


def race(job: str, simulators: list[DescentAlgorithm], repeats: int) -> list[Result]:
    """Measures rounds of every simulator in turns; the plain loop must be among them.

    Two rounds are run and compared before the measurement, so that compilation is not counted.

    Raises:
        SystemExit: a simulator trains another model.
    """
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder = Path(place) / job
        write_job(job, folder)
        running = {s.name: stack.enter_context(_Running(s, folder)) for s in simulators}
        gaps = _same_models(running, folder)
        seconds: dict[str, list[float]] = {name: [] for name in running}
        peaks = []
        for _ in tqdm(range(repeats), desc=f"{job}: {' / '.join(running)}", unit="turn"):
            peaks.append(measured_peak())
            for name, simulator in running.items():
                seconds[name].append(simulator.round())
        flops, peak = Job(folder).plan.flops, max(peaks)
        print(f"{job}: {flops:.3g} operations per round; {peak / 1e9:.0f} Gflop/s measured on {CORES} cores")
        return [
            Result(name, times, gaps[name], flops / statistics.median(times) / peak) for name, times in seconds.items()
        ]


def _same_models(running: dict[str, "_Running"], folder: Path) -> dict[str, float]:
    """Distance of each global model from the exact one after two rounds, as a share of the movement.

    Adam makes rounding large where a gradient is small, so no one loop in single precision is right: all are compared
    with the plain loop in double precision, and may be twice as far from it as the plain loop in single precision.
    """
    job, found = Job(folder), {}
    with _Running(_EXACT, folder) as exact:
        everyone = {_EXACT.name: exact, **running}
        for name, simulator in tqdm(everyone.items(), desc=f"{job.plan.name}: two rounds, compared", unit="simulator"):
            simulator.round()
            simulator.round()
            found[name] = simulator.weights()
    right = found.pop(_EXACT.name)
    movement = _distance(right, job.weights)
    gaps = {name: _distance(weights, right) / movement for name, weights in found.items()}
    for name, gap in gaps.items():
        print(f"{job.plan.name}: {name} is {gap:.1e} of the movement ({movement:.3g}) from the {_EXACT.name}")
    rounding = 2 * gaps[PLAIN.name]
    wrong = [name for name, gap in gaps.items() if not gap < max(running[name].simulator.tolerance, rounding)]
    if wrong:
        raise SystemExit(f"{job.plan.name}: {', '.join(wrong)} trained another model than the plain loop")
    return gaps


def _distance(one: Weights, other: Weights) -> float:
    squares = (((one[name] - other[name]).astype(np.float64) ** 2).sum() for name in other)  # type: ignore[operator]
    return float(np.sqrt(sum(squares)))


class _Running(AnsweringProcess):
    """A simulator's process."""

    def __init__(self, simulator: DescentAlgorithm, folder: Path) -> None:
        self.simulator, self.folder = simulator, folder
        command: list[str | Path] = [
            simulator.python,
            *simulator.launcher,
            simulator.module,
            str(folder),
            *simulator.arguments,
        ]
        log = folder.parent / f"{simulator.name}.log"
        super().__init__(simulator.name, command, threads=simulator.threads or CORES, log=log, setup="bench-peers")

    def __enter__(self) -> "_Running":
        super().__enter__()
        return self

    def round(self) -> float:
        """Runs a round and returns its seconds."""
        return float(self.ask("round"))

    def weights(self) -> Weights:
        """The current global model."""
        path = self.folder.parent / "weights.npz"
        self.ask(f"weights {path}")
        with np.load(path) as archive:
            return dict(archive)
