"""A learned attack is one process, whatever job it runs in."""

import pytest
import torch
from lightning import LightningModule
from torch import Tensor
from torch.utils.data import DataLoader

from modules.attack_trainer import fit_quietly


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
