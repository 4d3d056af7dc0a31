"""Check that a training has as many processes as devices, and not many more than the machine has cores.

Lightning relies on the launcher of the processes. If SLURM or torchrun started fewer processes than there are devices,
the training would silently use one device, or wait for the other processes forever.
"""

import os
from collections.abc import Mapping

from fedleak.core.errors import InputError

_NOT_BATCH = ("bash", "interactive")
"""Names of SLURM jobs in which Lightning launches the processes."""
_PER_CORE = 4
"""Processes for each core at most. More than one is slower than one, but a small machine can still try several out."""


def check_processes(wanted: int, environment: Mapping[str, str]) -> None:
    """Checks that the number of launched processes is the number of devices.

    Args:
        wanted: number of devices on all nodes.
        environment: environment variables of this process.

    Raises:
        InputError: SLURM or torchrun launched more or fewer processes.
    """
    launched = launched_processes(environment)
    if launched is None or launched == wanted:
        return
    if _under_slurm(environment):
        start = f"srun fedleak train ... in a job of --ntasks-per-node={wanted} (on one node)"
        way_out = f"Start it as {start}, as configs/cluster/train.sbatch does, or give --trainer.devices {launched}."
    else:
        way_out = f"Start it with torchrun --nproc-per-node {wanted} (on one node), or give fewer --trainer.devices."
    raise InputError(
        expected=f"{wanted} processes, one per device", found=f"a world size of {launched}", way_out=way_out
    )


def check_cores(processes: int, cores: int) -> None:
    """Checks that the processes of a training on CPUs can run at a time.

    Args:
        processes: number of processes on this machine.
        cores: number of cores that they may use.

    Raises:
        InputError: there are far more processes than cores, each of which would wait for all others in every round.
    """
    if processes > _PER_CORE * cores:
        raise InputError(
            expected=f"trainer.devices of at most {_PER_CORE * cores}, {_PER_CORE} for each core of this machine",
            found=str(processes),
            way_out=f"Give --trainer.devices {cores}, or 1: on CPUs, one process uses several cores by itself.",
        )


def usable_cores() -> int:
    """Number of cores that this process may use, which a cluster or a container may limit."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def launched_processes(environment: Mapping[str, str]) -> int | None:
    """Number of processes that SLURM or torchrun launched; None if Lightning will launch them."""
    # torchrun says how many processes it started in the environment, SLURM in that of a step.
    if "TORCHELASTIC_RUN_ID" in environment:
        return int(environment["WORLD_SIZE"])
    if _under_slurm(environment):
        # A batch script sees the number of tasks of the job, but is one process until it calls srun.
        return int(environment.get("SLURM_STEP_NUM_TASKS", 1))
    return None


def _under_slurm(environment: Mapping[str, str]) -> bool:
    """Whether Lightning assumes that SLURM launched the processes, see ``SLURMEnvironment.detect``."""
    return "SLURM_NTASKS" in environment and environment.get("SLURM_JOB_NAME") not in _NOT_BATCH
