"""Lightning's Trainer as learned attacks use it: steps only, without logs, files or messages."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch.callbacks import Callback

from protocol.progress import advance


def fit_quietly(
    module: LightningModule,
    *,
    accelerator: str,
    devices: int = 1,
    max_steps: int = -1,
    max_epochs: int | None = None,
) -> None:
    """Trains an attack's module on its own loader.

    Args:
        module: gives its data with ``train_dataloader``.
        accelerator: where to run, as Lightning names it.
        devices: on how many; a module shares out its work by `own_share`, and gradients are averaged.
        max_steps: optimizer steps, -1 for no limit.
        max_epochs: passes over the loader.
    """
    with _quiet():
        trainer = Trainer(
            max_steps=max_steps,
            max_epochs=max_epochs,
            callbacks=[_SaysHowFar()],
            accelerator=accelerator,
            devices=devices,
            strategy="auto" if devices == 1 else "ddp_spawn",
            use_distributed_sampler=False,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            plugins=[LightningEnvironment()],  # one process, even inside a job of several, whose rank zero attacks
        )
        trainer.fit(module)


def world_size(module: LightningModule) -> int:
    """Processes that train a module together, 1 where nobody trains it."""
    return module.trainer.world_size if module._trainer is not None else 1


def own_share(module: LightningModule) -> slice:
    """Which rows of a batch, or which victims, are this process's."""
    return slice(module.global_rank, None, world_size(module))


def _generator(state: bytes) -> torch.Generator:
    generator = torch.Generator()
    generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    return generator


# As it is pickled by default, the state is in shared memory that is gone before the other process reads it.
ForkingPickler.register(torch.Generator, lambda draws: (_generator, (draws.get_state().numpy().tobytes(),)))


class _SaysHowFar(Callback):
    """Says after each step how far the training is, so that a bar moves within one view."""

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """The share of the steps, or of the epochs."""
        if trainer.max_steps > 0:
            advance(trainer.global_step / trainer.max_steps)
        elif trainer.max_epochs:
            advance((trainer.current_epoch + (batch_idx + 1) / trainer.num_training_batches) / trainer.max_epochs)


@contextmanager
def _quiet() -> Iterator[None]:
    """Lightning's lines about devices would come once per view."""
    log = logging.getLogger("lightning.pytorch")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
