"""fedleak: a FederatedModule in a Lightning Trainer, in one process or, started by torchrun, in several."""

import os
from collections import OrderedDict
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn

from bench.peers.networks import ImageNetwork, empty_network, network_of, weights_of
from bench.peers.protocol import Host, Job, job_folder
from fedleak.client.cohort import Cohort
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.network import ModuleAlgorithm
from fedleak.client.recommendation import USER_EMBEDDING
from fedleak.core.view import ITEM_EMBEDDING
from fedleak.modules.learners.fncf import FNCF
from fedleak.training.data import FederatedDataModule
from fedleak.training.federated import FederatedModule
from fedleak.training.server_optimizer import ServerOptimizer


class JobData(FederatedDataModule):
    """A job's clients and cohorts.

    Args:
        job: the job.
    """

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job
        self.tensors = {name: torch.from_numpy(value.copy()) for name, value in job.arrays.items()}

    @property
    def num_clients(self) -> int:
        return len(self.job.counts)

    @property
    def fingerprint(self) -> dict[str, str]:
        return {"name": self.job.plan.name, "sha256": ""}

    def participants(self, round_number: int) -> Tensor:
        return self.tensors["cohorts"][round_number % len(self.tensors["cohorts"])]

    def build_cohort(self, round_number: int, clients: Tensor) -> Cohort:
        labels = self.tensors["labels"][clients]
        mask = torch.arange(labels.shape[1]) < self.tensors["counts"][clients, None]
        if self.job.plan.kind == "images":
            return Cohort(round_number, clients, {"image": self.tensors["images"][clients], "label": labels}, mask)
        return Cohort(round_number, clients, {"label": labels}, mask, {ITEM_EMBEDDING: self.tensors["items"][clients]})


class ImageModule(FederatedModule):
    """Clients that learn the job's classifier.

    Args:
        job: the job.
        local: how clients train.
    """

    def __init__(self, job: Job, local: LocalTraining) -> None:
        super().__init__(local=local, server=ServerOptimizer(), defenses=(), weighting="examples", seed=0)
        network, template = network_of(job), empty_network(job)
        assert isinstance(network, ImageNetwork)
        assert isinstance(template, ImageNetwork)
        self.body, self.output = network.body, network.output
        # The same layers as a chain, whose gradients the engine writes out.
        self.algorithm = ModuleAlgorithm(
            local=local, module=nn.Sequential(OrderedDict(body=template.body, output=template.output))
        )


def local_training(job: Job) -> LocalTraining:
    """How the job's clients train."""
    plan = job.plan
    return LocalTraining(
        optimizer="adam" if plan.optimizer == "adam" else "sgd",
        learning_rate=plan.learning_rate,
        epochs=plan.epochs,
        batch_size=plan.batch_size,
    )


def module_of(job: Job) -> FederatedModule:
    """The module of a job, with its initial weights."""
    if job.plan.kind == "images":
        return ImageModule(job, local_training(job))
    items, dim = job.weights[ITEM_EMBEDDING].shape
    made = FNCF(
        num_items=items,
        num_clients=len(job.counts),
        user_dim=dim,
        item_dim=dim,
        hidden=(64, 32),
        local=local_training(job),
    )
    with torch.no_grad():
        for name, value in made.public_parameters().items():
            value.copy_(torch.from_numpy(job.weights[name]))
    made.private[USER_EMBEDDING] = torch.from_numpy(job.arrays["users"].copy())
    return made


class Turns(Callback):
    """Makes all processes wait for a request; the first one communicates.

    Args:
        host: the talk with who asks.
    """

    def __init__(self, host: Host | None) -> None:
        self.host = host

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Waits for the first round."""
        self._wait(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Reports the end of the round and waits for the next; building its cohort counts as part of it."""
        if self.host:
            self.host.done()
        trainer.should_stop = not self._wait(trainer)

    def _wait(self, trainer: Trainer) -> bool:
        return bool(trainer.strategy.broadcast(self.host.wait() if self.host else None))


def main() -> None:
    """Runs rounds on request."""
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    job = Job(job_folder())
    module = module_of(job)
    Trainer(
        max_steps=-1,
        accelerator="cpu",
        devices=world,
        strategy="ddp" if world > 1 else "auto",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        use_distributed_sampler=False,
        callbacks=[Turns(Host(lambda: weights_of(module)) if rank == 0 else None)],
    ).fit(module, datamodule=JobData(job))


if __name__ == "__main__":
    main()
