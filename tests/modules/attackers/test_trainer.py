"""A learned attack is one process, whatever job it runs in, unless it is given more devices."""

import pytest
import torch

from modules.attackers.gradient_matching import GradientMatching
from modules.attackers.identity_nets import ReidentificationNet
from modules.attackers.trainer import fit_quietly
from tests.toys import Line, leaky_view

pytestmark = pytest.mark.integration


def test_it_trains_inside_a_job_of_two_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    job = {"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NNODES": "1", "SLURM_PROCID": "0"}
    for name, value in {**job, "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_JOB_NAME": "train"}.items():
        monkeypatch.setenv(name, value)
    module = Line()
    fit_quietly(module, accelerator="cpu", max_steps=2)
    assert module.weight.item() == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["re-identification", "adam", "lbfgs"])
def test_two_devices_share_the_work_and_find_what_one_finds(kind: str) -> None:
    found = []
    for devices in (1, 2):
        draws = torch.Generator().manual_seed(0)
        if kind == "re-identification":
            vectors = torch.randn(33, 20, generator=draws)  # the last batch is one message
            labels = torch.arange(33) % 5
            module = ReidentificationNet(vectors, labels, users=5, whole=100, generator=draws)
            fit_quietly(module, accelerator="cpu", devices=devices, max_epochs=4)
            found.append(module.eval()(vectors).detach())
        else:
            matching = GradientMatching(leaky_view(victims=3)[0], generator=draws, max_iter=5, solver=kind)  # type: ignore[arg-type]
            fit_quietly(matching, accelerator="cpu", devices=devices, max_epochs=1)
            found.append(matching.best)
    # Both optimizers enlarge what depends on the size of a batch: the rounding of its matrix products.
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5 if kind == "re-identification" else 0.05)
    assert kind == "re-identification" or (found[0] - found[0].roll(1, 0)).abs().max() > 0.1  # victims differ by more
