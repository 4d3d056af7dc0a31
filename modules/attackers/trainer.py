"""Lightning's Trainer for learned attacks: steps only, without logs, files or messages."""

import logging
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.utils.data import DataLoader

from fedleak.core.progress import report_progress


def fit_quietly(
    module: LightningModule, *, accelerator: str, devices: int = 1, max_steps: int = -1, max_epochs: int | None = None
) -> None:
    """Trains an attack's module on its own data loader.

    Args:
        module: the module, with a ``train_dataloader``.
        accelerator: Lightning accelerator.
        devices: number of devices; the module divides its work by `own_share`, and gradients are averaged.
        max_steps: optimizer steps, -1 for no limit.
        max_epochs: passes over the loader.
    """
    log = logging.getLogger("lightning.pytorch")
    before = log.level
    log.setLevel(logging.ERROR)  # its messages about devices would be repeated for every view
    try:
        trainer = Trainer(
            max_steps=max_steps,
            max_epochs=max_epochs,
            callbacks=[_ReportProgress(), _EndGroup()],
            accelerator=accelerator,
            devices=devices,
            strategy="auto" if devices == 1 else "ddp_spawn",
            use_distributed_sampler=False,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            plugins=[LightningEnvironment()],  # one process, even in a job of several, whose rank zero attacks
        )
        trainer.fit(module)
    finally:
        log.setLevel(before)


def world_size(module: LightningModule) -> int:
    """Number of processes that train a module together, 1 without a trainer."""
    if module._trainer is not None:
        return module.trainer.world_size
    return 1


def own_share(module: LightningModule) -> slice:
    """Rows of a batch, or victims, of this process."""
    return slice(module.global_rank, None, world_size(module))


def empty_batches(steps: int) -> DataLoader[Tensor]:
    """Empty batches, one per step, for modules that hold their data."""
    batches: list[Tensor] = [torch.zeros(())] * steps
    # Without its own generator, the loader would use the global one.
    return DataLoader(batches, batch_size=None, generator=torch.Generator())  # type: ignore[arg-type]


def _generator(state: bytes) -> torch.Generator:
    generator = torch.Generator()
    generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    return generator


# By default, the pickled state is in shared memory, which is freed before the other process reads it.
ForkingPickler.register(torch.Generator, lambda draws: (_generator, (draws.get_state().numpy().tobytes(),)))


class _EndGroup(Callback):
    """Ends the group of the processes that train together.

    A process that ends before its group is aborted now and then, and what it trained is lost.
    """

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if trainer.world_size > 1:
            trainer.strategy.barrier()
            torch.distributed.destroy_process_group()


class _ReportProgress(Callback):
    """Reports progress after each step."""

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.max_steps > 0:
            report_progress(trainer.global_step / trainer.max_steps)
        elif trainer.max_epochs:
            epochs = trainer.current_epoch + (batch_idx + 1) / trainer.num_training_batches
            report_progress(epochs / trainer.max_epochs)
