"""The hardware that results were computed on."""

import os
import platform
from pathlib import Path

import torch


def hardware() -> str:
    """Processor, number of cores and GPUs."""
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return ", ".join([_processor(), f"{os.cpu_count()} cores", *gpus])


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
