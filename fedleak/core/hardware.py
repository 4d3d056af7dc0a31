"""The hardware that results were computed on."""

import os
import platform
from pathlib import Path

import torch


def hardware() -> str:
    """Processor, number of cores and GPUs."""
    parts = [_processor(), f"{os.cpu_count()} cores"]
    for index in range(torch.cuda.device_count()):
        parts.append(torch.cuda.get_device_name(index))
    return ", ".join(parts)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # no Linux
        return platform.processor() or platform.machine()
    for line in lines:
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
