"""Trainings with ``fedleak watch`` beside them: a fault in Flower and NVFlare, and the overhead on a round."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import nn

from fedleak_recorder import Recorder
from fedleak_recorder.journal import read_journal
from fedleak_recorder.verdict import VERDICT

ROOT = Path(__file__).resolve().parents[1]
LIMIT = "declared-privacy/findings=0.05"
_RELEASE = {"clip": 1.0, "noise_scale": 0.5}


def planted_fault(framework: str, python: str, fault: int, rounds: int) -> None:
    """Runs a training of the framework beside a watch, and prints in which round it ended.

    Args:
        framework: ``flower`` or ``nvflare``.
        python: interpreter of the framework's environment.
        fault: number of the round from which on clients add no noise.
        rounds: number of rounds of the training.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [python, "-m", f"tests.{framework}.watched", str(folder), "--fault", str(fault)]
        start = time.perf_counter()
        with watching(folder, rounds) as process:
            subprocess.run(
                [*command, "--rounds", str(rounds)], cwd=ROOT, env=_environment(), capture_output=True, check=False
            )
            seconds = time.perf_counter() - start
            status = process.wait(timeout=120)
        recorded = sorted({line.round for line in read_journal(folder / "deltas/journal.jsonl").lines})
        verdict = json.loads((folder / "watch" / VERDICT).read_text())
        print(
            f"{framework}, {rounds} rounds, noise switched off in round {fault}: recorded rounds {recorded[0]} to"
            f" {recorded[-1]}, verdict {verdict['overall']} in round {verdict['round']}, watch ended with status"
            f" {status}, {seconds:.0f} s in all",
            flush=True,
        )


@contextlib.contextmanager
def watching(folder: Path, rounds: int) -> Iterator["subprocess.Popen[bytes]"]:
    """A watch of ``folder/deltas``, which is ended with the block."""
    words = ["-m", "fedleak", "watch", str(folder / "deltas"), "--gate", LIMIT, "--expected-rounds", str(rounds)]
    with subprocess.Popen([sys.executable, *words], cwd=ROOT, env=_environment(), stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()


def overhead(rounds: int, clients: int = 10, width: int = 512, steps: int = 60) -> None:
    """Seconds of a round alone, with the recorder, and with the recorder and the watch; blocks of rounds in turn.

    The watch runs in the blocks of its own only. It audits all the time there, because it is slower than the training.
    """
    torch.set_num_threads(1)
    network = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    first = {name: value.detach().numpy().copy() for name, value in network.state_dict().items()}
    seconds: dict[str, list[tuple[float, float]]] = {"alone": [], "recorder": [], "recorder and watch": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        release = {**_RELEASE, "parameters": [*first]}
        with Recorder(folder / "deltas", parameters=first, releases=[release], holds="deltas") as recorder:
            number = _round(network, first, clients, steps, recorder, 0)[1]
            with watching(folder, 100) as process:
                while not (folder / "watch" / VERDICT).exists():  # it has loaded everything
                    time.sleep(0.1)
                for _ in range(rounds):
                    for kind, own in seconds.items():
                        process.send_signal(signal.SIGCONT if kind == "recorder and watch" else signal.SIGSTOP)
                        for _ in range(3):
                            given = None if kind == "alone" else recorder
                            spent, number = _round(network, first, clients, steps, given, number)
                            own.append(spent)
                verdict = json.loads((folder / "watch" / VERDICT).read_text())
    numbers = sum(value.size for value in first.values())
    print(
        f"{clients} clients of {numbers} numbers, {3 * rounds} rounds of each; audited up to round {verdict['round']}"
    )
    for kind, own in seconds.items():
        wall, cpu = (median(one[part] for one in own) for part in (0, 1))
        wall_alone, cpu_alone = (median(one[part] for one in seconds["alone"]) for part in (0, 1))
        print(
            f"{kind:>20}: median of a round {wall:.3f} s ({wall / wall_alone - 1:+.1%}), of the training's process"
            f" {cpu:.3f} CPU seconds ({cpu / cpu_alone - 1:+.1%})"
        )


def _round(
    network: nn.Module,
    first: dict[str, "np.ndarray[tuple[int, ...], np.dtype[np.float32]]"],
    clients: int,
    steps: int,
    recorder: Recorder | None,
    number: int,
) -> tuple[tuple[float, float], int]:
    """Seconds and CPU seconds of a round, and the number of the next one that is recorded."""
    draws = torch.Generator().manual_seed(number)
    start, busy = time.perf_counter(), time.process_time()
    updates = {}
    for client in range(clients):
        network.load_state_dict({key: torch.from_numpy(value) for key, value in first.items()})
        optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
        for _ in range(steps):
            examples = torch.randn(64, 64, generator=draws)
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(examples), examples[:, :10].argmax(1)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        change = {key: value.numpy() - first[key] for key, value in network.state_dict().items()}
        noised = {key: value + 0.5 * torch.randn(value.shape, generator=draws).numpy() for key, value in change.items()}
        updates[client] = (noised, 64)
    if recorder is not None:
        recorder.round(number, first, updates)
    return (time.perf_counter() - start, time.process_time() - busy), number + (recorder is not None)


def _environment() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "recorder"), str(ROOT / "guard")])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
