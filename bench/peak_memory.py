"""Peak resident memory of this program."""

from pathlib import Path


def peak_mib() -> float:
    """Peak resident memory of this program; getrusage would give a child at least that of its parent."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
