"""A progress bar over communication rounds, with the time left."""

import sys
from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from tqdm import tqdm


class RoundProgress(ProgressBar):
    """Shows rounds done, rounds in all and the time left, on rank zero.

    Lightning's own bar counts the batches of an epoch. The loader of rounds has no end, so that bar knows no total and
    no time left, though `max_steps`, or a server that ends the training, gives both. A resumed training continues where
    it was.
    """

    def __init__(self) -> None:
        super().__init__()
        self._bar: tqdm[Any] | None = None
        self._enabled = True

    def disable(self) -> None:
        """Called by the Trainer on every rank but zero."""
        self._enabled = False

    def enable(self) -> None:
        self._enabled = True

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Opens the bar."""
        ends = [trainer.max_steps if trainer.max_steps > 0 else None, getattr(pl_module, "rounds", None)]
        self._bar = tqdm(
            total=min((end for end in ends if end is not None), default=None),
            initial=trainer.global_step,
            desc="rounds",
            unit="round",
            file=sys.stderr,
            disable=not self._enabled,
        )

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """One more round; what the module logs with ``prog_bar=True`` stands beside it."""
        assert self._bar is not None
        self._bar.update(trainer.global_step - self._bar.n)
        self._bar.set_postfix(self.get_metrics(trainer, pl_module), refresh=False)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Closes the bar, which stays on the screen with the last validation's metrics."""
        if self._bar is not None:
            self._bar.set_postfix(self.get_metrics(trainer, pl_module))
        self._close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Closes the bar, so that the error starts on its own line."""
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
