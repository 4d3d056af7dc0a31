"""A learned attack is one process, whatever job it runs in, unless it is given more devices."""

import pytest
import torch
from lightning import LightningModule
from torch import Tensor
from torch.utils.data import DataLoader

from modules.attackers.gradient_matching import GradientMatching
from modules.attackers.identity_nets import ReidentificationNet
from modules.attackers.trainer import fit_quietly
from tests.toys import leaky_view


class Line(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def train_dataloader(self) -> DataLoader[Tensor]:
        return DataLoader(torch.ones(8, 1), batch_size=4)  # type: ignore[arg-type]

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        return ((batch @ self.weight - 1) ** 2).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.5)


def test_it_trains_inside_a_job_of_two_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    job = {"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NNODES": "1", "SLURM_PROCID": "0"}
    for name, value in {**job, "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_JOB_NAME": "train"}.items():
        monkeypatch.setenv(name, value)
    module = Line()
    fit_quietly(module, accelerator="cpu", max_steps=2)
    assert module.weight.item() == pytest.approx(1.0)


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["re-identification", "gradient matching"])
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
            matching = GradientMatching(leaky_view(victims=3)[0], generator=draws, max_iter=5, solver="adam")
            fit_quietly(matching, accelerator="cpu", devices=devices, max_steps=matching.trainer_steps)
            found.append(matching.best)
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)
