"""Progress bar over communication rounds and the clients of a round, with the time left."""

import contextlib
import sys
from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from tqdm import tqdm

from fedleak.core.progress import client_listener

_FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {rounds}/{total_fmt} [{elapsed}<{remaining}{postfix}]"

_BEFORE_THE_STEP = 0.99
"""Largest share of a round before the server's step, so that it does not count as a whole one."""


class _WholeRounds(tqdm):  # type: ignore[type-arg]
    """Bar that advances by parts of a round, and shows the number of whole ones."""

    @property
    def format_dict(self) -> dict[str, Any]:
        return {**super().format_dict, "rounds": int(self.n)}


class RoundProgress(ProgressBar):
    """Progress bar with the finished rounds, their total number and the time left, on rank zero.

    Within a round the bar advances by the share of the clients whose local training has ended, and shows their number.
    Lightning's own bar counts the batches of an epoch, which the endless loader of rounds does not know; the total here
    is `max_steps`, or the number of rounds after which the server ends the training.
    """

    def __init__(self) -> None:
        super().__init__()
        self._bar: tqdm[Any] | None = None
        self._listening = contextlib.ExitStack()
        self._enabled = True

    def disable(self) -> None:
        """Hides the bar; the Trainer calls it on every rank but zero."""
        self._enabled = False

    def enable(self) -> None:
        self._enabled = True

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Opens the bar."""
        # The training ends with the trainer's last step or with the server's last round, whichever comes first.
        ends = [getattr(pl_module, "rounds", None)]
        if trainer.max_steps > 0:
            ends.append(trainer.max_steps)
        self._bar = _WholeRounds(
            total=min((end for end in ends if end is not None), default=None),
            initial=trainer.global_step,
            desc="rounds",
            unit="round",
            bar_format=_FORMAT,
            file=sys.stderr,
            disable=not self._enabled,
        )

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Advances the bar with the clients of the round, until it ends."""
        bar = self._bar
        clients = len(batch)
        start = trainer.global_step
        done = 0
        assert bar is not None

        def advance(count: int) -> None:
            nonlocal done
            done = min(done + count, clients)
            bar.set_postfix_str(f"{done} of {clients} clients", refresh=False)
            share = done / max(clients, 1) * _BEFORE_THE_STEP
            bar.update(start + share - bar.n)

        self._listening.close()
        self._listening.enter_context(client_listener(advance))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Advances the bar, with the metrics that the module logs with ``prog_bar=True``."""
        assert self._bar is not None
        self._listening.close()
        self._bar.update(trainer.global_step - self._bar.n)
        self._bar.set_postfix(self.get_metrics(trainer, pl_module), refresh=False)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Closes the bar with the metrics of the last validation."""
        if self._bar is not None:
            self._bar.set_postfix(self.get_metrics(trainer, pl_module))
        self._close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Closes the bar before the error message."""
        self._close()

    def _close(self) -> None:
        self._listening.close()
        if self._bar is not None:
            self._bar.close()
            self._bar = None
