"""A learned attack is one process, whatever job it runs in, unless it is given more devices."""

from typing import Any

import pytest
import torch

from fedleak.modules.attackers.gradient_matching import InteractionMatching
from fedleak.modules.attackers.identity_nets import ReidentificationNet
from fedleak.modules.attackers.trainer import fit_quietly
from tests.toys import Line, leaky_view
from tests.two_ranks import TwoRanks

pytestmark = pytest.mark.integration


def test_it_trains_inside_a_job_of_two_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    job = {"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NNODES": "1", "SLURM_PROCID": "0"}
    for name, value in {**job, "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_JOB_NAME": "train"}.items():
        monkeypatch.setenv(name, value)
    module = Line()
    fit_quietly(module, accelerator="cpu", max_steps=2)
    assert module.weight.item() == pytest.approx(1.0)


def test_two_processes_train_the_network_that_one_trains() -> None:
    found = []
    for devices in (1, 2):
        draws = torch.Generator().manual_seed(0)
        vectors = torch.randn(33, 20, generator=draws)  # the last batch is one message
        module = ReidentificationNet(vectors, torch.arange(33) % 5, users=5, fan_in=100, generator=draws)
        fit_quietly(module, accelerator="cpu", devices=devices, max_epochs=4)
        found.append(module.eval()(vectors).detach())
    # The rounding of matrix products depends on the size of a batch.
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_two_ranks_share_the_victims_and_find_what_one_finds(solver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    view, _ = leaky_view(victims=3)
    alone, first, second = (
        InteractionMatching(view, generator=torch.Generator().manual_seed(0), max_iter=3, solver=solver)
        for _ in range(3)
    )
    fit_quietly(alone, accelerator="cpu", max_epochs=1)
    ranks, modules = TwoRanks(monkeypatch), (first, second)

    def fit(rank: int) -> None:
        """The loop of a training, with the mean of both ranks' gradients."""
        module, trainer = modules[rank], ranks.trainer(rank)
        module.trainer = trainer
        optimizer = module.configure_optimizers()
        for number, batch in enumerate(module.train_dataloader()):
            loss = module.training_step(batch, number)
            if loss is not None:
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                for group in optimizer.param_groups:
                    for parameter in group["params"]:
                        parameter.grad = ranks.all_gather(parameter.grad).mean(0)
                optimizer.step()
        module.on_train_end()

    ranks.run(fit)
    for module in modules:
        # Both solvers enlarge the rounding of matrix products, but victims differ by more.
        torch.testing.assert_close(module.best, alone.best, rtol=1e-4, atol=0.05)
        assert {"best", "best_loss"} <= module.state_dict().keys()  # what another process returns
    assert (alone.best - alone.best.roll(1, 0)).abs().max() > 0.1
