"""A client with a guard that is killed: ``python -m tests.guard_kills FOLDER`` sends one message after the other.

What leaves is appended to the file ``sent``, after the guard has released it. `killed` kills the client at a random
time and counts what left without an entry in the log.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from fedleak_guard.chained_log import read_log
from fedleak_guard.message import tensors_hash
from tests.guard_toys import log_of, message, site
from tests.places import ROOT


def main() -> None:
    """Sends messages until it is killed."""
    folder = Path(sys.argv[1])
    guard = site(folder)
    for number in range(10**6):
        released = guard.release(message(number % 50))
        assert released.tensors is not None
        with (folder / "sent").open("a") as file:
            file.write(f"{tensors_hash(released.tensors)}\n")


def killed(folder: Path, seed: int) -> tuple[int, int]:
    """Messages that left, and those among them without an entry ``released``; raises if the chain is broken."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'guard'}:{ROOT / 'recorder'}"}
    command = [sys.executable, "-m", "tests.guard_kills", str(folder)]
    client = subprocess.Popen(command, env=environment, cwd=ROOT, stderr=subprocess.DEVNULL)
    limit = time.monotonic() + 60
    while not (folder / "sent").exists() and client.poll() is None and time.monotonic() < limit:
        time.sleep(0.01)
    time.sleep(random.Random(seed).random() * 0.3)
    client.send_signal(signal.SIGKILL)
    client.wait()
    entries, _ = read_log(log_of(folder))
    left = [entry["content"] for entry in entries if entry["event"] == "released"]
    sent = [line for line in (folder / "sent").read_text().splitlines() if len(line) == 64]
    return len(sent), sum(sent.count(one) > left.count(one) for one in set(sent))


if __name__ == "__main__":
    main()
