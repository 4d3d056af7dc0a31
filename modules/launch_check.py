"""How many processes take part in a training: as many as it has devices, or it is refused at the start.

Lightning trusts whoever started the processes. Where that was fewer than devices were asked for, the training would run
on one of them without a word, or wait for the others for ever.
"""

from collections.abc import Mapping

from protocol.errors import InputError

_NOT_BATCH = ("bash", "interactive")
"""Names of SLURM jobs in which Lightning starts the processes itself."""


def check_processes(wanted: int, environment: Mapping[str, str]) -> None:
    """Refuses a start with another number of processes than devices.

    Args:
        wanted: devices on all nodes.
        environment: of this process.

    Raises:
        InputError: SLURM or torchrun started more or fewer.
    """
    launched = launched_processes(environment)
    if launched is None or launched == wanted:
        return
    if _under_slurm(environment):
        start = f"srun python train.py ... in a job of --ntasks-per-node={wanted} (on one node)"
        way_out = f"Start it as {start}, as configs/cluster/train.sbatch does, or give --trainer.devices {launched}."
    else:
        way_out = f"Start it with torchrun --nproc-per-node {wanted} (on one node), or give fewer --trainer.devices."
    raise InputError(
        expected=f"{wanted} processes, one per device", found=f"a world size of {launched}", way_out=way_out
    )


def launched_processes(environment: Mapping[str, str]) -> int | None:
    """Processes that somebody else started for this training; None where Lightning will start them."""
    if "TORCHELASTIC_RUN_ID" in environment:
        return int(environment["WORLD_SIZE"])
    if _under_slurm(environment):
        # A batch file knows the job's tasks, but is itself one process until it calls srun.
        return int(environment.get("SLURM_STEP_NUM_TASKS", 1))
    return None


def _under_slurm(environment: Mapping[str, str]) -> bool:
    """Whether Lightning takes the processes for SLURM's; see ``SLURMEnvironment.detect``."""
    return "SLURM_NTASKS" in environment and environment.get("SLURM_JOB_NAME") not in _NOT_BATCH
