"""Check that a training has as many processes as devices.

Lightning relies on the launcher of the processes. If SLURM or torchrun started fewer processes than there are devices,
the training would silently use one device, or wait for the other processes forever.
"""

from collections.abc import Mapping

from fedleak.core.errors import InputError

_NOT_BATCH = ("bash", "interactive")
"""Names of SLURM jobs in which Lightning launches the processes."""


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


def launched_processes(environment: Mapping[str, str]) -> int | None:
    """Number of processes that SLURM or torchrun launched; None if Lightning will launch them."""
    if "TORCHELASTIC_RUN_ID" in environment:
        return int(environment["WORLD_SIZE"])
    if _under_slurm(environment):
        # A batch script sees the number of tasks of the job, but is one process until it calls srun.
        return int(environment.get("SLURM_STEP_NUM_TASKS", 1))
    return None


def _under_slurm(environment: Mapping[str, str]) -> bool:
    """Whether Lightning assumes that SLURM launched the processes, see ``SLURMEnvironment.detect``."""
    return "SLURM_NTASKS" in environment and environment.get("SLURM_JOB_NAME") not in _NOT_BATCH
