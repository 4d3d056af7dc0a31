"""Lightning's Trainer as learned attacks use it: nothing but steps, and not a word."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from lightning import LightningModule, Trainer
from lightning.fabric.plugins.environments.lightning import LightningEnvironment


def fit_quietly(
    module: LightningModule, *, accelerator: str, max_steps: int = -1, max_epochs: int | None = None
) -> None:
    """Trains an attack's module on its own loader.

    Args:
        module: gives its data with ``train_dataloader``.
        accelerator: where to run, as Lightning names it.
        max_steps: optimizer steps, -1 for no limit.
        max_epochs: passes over the loader.
    """
    with _quiet():
        trainer = Trainer(
            max_steps=max_steps,
            max_epochs=max_epochs,
            accelerator=accelerator,
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            plugins=[LightningEnvironment()],  # one process, even inside a job of several, whose rank zero attacks
        )
        trainer.fit(module)


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
