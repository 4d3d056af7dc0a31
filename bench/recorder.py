"""Recording of a round of another system: memory and speed, next to copying and hashing the same bytes.

``python -m bench.recorder [--clients 100] [--numbers 2000000]`` streams one round of float32 models and prints the peak
memory of the process, and the time as a ratio to ``cp`` and ``sha256sum`` of the same files.
"""

import argparse
import resource
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from fedleak_recorder import Recorder
from fedleak_recorder.sent import Sent


def record(folder: Path, clients: int, numbers: int) -> float:
    """Seconds of the recorder for a round of models of two layers, without the time of making them."""
    draws = np.random.default_rng(0)
    half = numbers // 2
    model = {name: draws.standard_normal(half, dtype=np.float32) for name in ("first", "second")}
    spent = 0.0
    with Recorder(folder, parameters=model) as recorder:
        start = time.perf_counter()
        with recorder.streamed(0, model) as add:
            spent += time.perf_counter() - start
            for client in range(clients):
                arrays = {name: value + np.float32(0.01) * (client + 1) for name, value in model.items()}
                start = time.perf_counter()
                add(Sent(client=f"client {client}", examples=30, arrays=arrays))
                spent += time.perf_counter() - start
            start = time.perf_counter()
        return spent + time.perf_counter() - start


def copied(folder: Path) -> float:
    """Seconds of ``cp`` and ``sha256sum`` of the files of the round."""
    files = sorted(map(str, folder.glob("rounds/*.safetensors")))
    target = folder / "copy"
    target.mkdir()
    start = time.perf_counter()
    subprocess.run(["cp", *files, str(target)], check=True)
    subprocess.run(["sha256sum", *files], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    """Prints a line for each repetition."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--numbers", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    size = options.clients * options.numbers * 4 / 2**20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory() as folder:
            spent = record(Path(folder), options.clients, options.numbers)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
            other = copied(Path(folder))
            print(
                f"{size:.0f} MiB: peak memory {peak:.0f} MiB ({before:.0f} before), {size / spent:.0f} MiB/s,"
                f" {other / spent:.2f} times the speed of cp and sha256sum"
            )


if __name__ == "__main__":
    main()
