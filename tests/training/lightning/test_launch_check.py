"""A training starts with a process for every device, or not at all."""

import pytest

from fedleak.commands import train
from fedleak.core.errors import InputError
from fedleak.training.lightning.launch_check import check_cores, check_processes, launched_processes

BATCH = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "2", "SLURM_JOB_NAME": "fedleak"}
STEP = {**BATCH, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}
TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "3"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, None), (BATCH, 1), (STEP, 2), ({**BATCH, "SLURM_JOB_NAME": "bash"}, None), (TORCHRUN, 3)],
)
def test_who_started_how_many(environment: dict[str, str], expected: int | None) -> None:
    assert launched_processes(environment) == expected


def test_as_many_as_devices_are_accepted() -> None:
    check_processes(2, {})
    check_processes(2, STEP)
    check_processes(1, BATCH)
    check_processes(3, TORCHRUN)


@pytest.mark.parametrize(
    ("wanted", "environment", "way_out"),
    [(2, BATCH, "Start it as srun"), (4, STEP, "train.sbatch"), (1, STEP, "srun"), (4, TORCHRUN, "torchrun --nproc")],
)
def test_another_number_is_refused_with_the_way_out(wanted: int, environment: dict[str, str], way_out: str) -> None:
    with pytest.raises(InputError, match=way_out) as refused:
        check_processes(wanted, environment)
    assert refused.value.expected == f"{wanted} processes, one per device"


def test_far_more_processes_than_cores_are_refused() -> None:
    check_cores(8, cores=2)
    says = r"at most 8, 4 for each core of this machine; found 9. Give --trainer.devices 2"
    with pytest.raises(InputError, match=says):
        check_cores(9, cores=2)


def test_the_command_is_refused_before_anything_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    cpu = ("--trainer.accelerator", "cpu", "--trainer.devices", "auto")
    status = train.run(["fit", "--config", "configs/train/fncf_synthetic.yaml", *cpu])
    assert status == 2
    assert "fedleak: expected 1 processes" in capsys.readouterr().err
