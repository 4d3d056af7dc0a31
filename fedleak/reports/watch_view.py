"""View of a watch: lines in a terminal, and numbers in Lightning's loggers."""

import logging
import os
import sys
from pathlib import Path
from typing import Any, Literal, Self

from lightning.pytorch.loggers import CSVLogger, Logger, MLFlowLogger, TensorBoardLogger, WandbLogger
from tqdm import tqdm

from fedleak.core.errors import InputError
from fedleak.evaluation.sequential_gate import LimitState
from fedleak.evaluation.watching import Look
from fedleak.reports.exporters.mlflow import limit_retries

_logger = logging.getLogger(__name__)
LoggerName = Literal["csv", "mlflow", "tensorboard", "wandb"]


class WatchView:
    """Lines that change in a terminal, or else a line whenever a verdict changes.

    A terminal shows the round with the time left, and a line per limit: the attack that decides, its mean with the
    interval, the limit and the verdict.

    Args:
        limits: number of limits.
        last: number of rounds that are expected, for the time left; None if it is unknown.
    """

    def __init__(self, limits: int, last: int | None) -> None:
        self._live = sys.stderr is not None and sys.stderr.isatty()
        options: dict[str, Any] = {"disable": not self._live, "dynamic_ncols": True, "leave": True}
        self._rounds = tqdm(total=last, desc="waiting for the recording", unit=" rounds", position=0, **options)
        self._lines = [
            tqdm(total=0, position=position, bar_format="{desc}", **options) for position in range(1, limits + 1)
        ]
        self._verdicts_before: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for bar in (*self._lines[::-1], self._rounds):
            bar.close()

    def show(self, look: Look) -> None:
        """Shows a look."""
        self._rounds.set_description(f"round {look.round}, {look.overall}", refresh=False)
        self._rounds.update(look.audited - self._rounds.n)
        for bar, state in zip(self._lines, look.states, strict=True):
            bar.set_description_str(state.sentence)
        verdicts = [state.verdict for state in look.states]
        # A log file gets a line only where something is new; a terminal's lines have changed in place.
        if not self._live and verdicts != self._verdicts_before:
            print("\n".join(f"round {look.round}: {state.sentence}" for state in look.states), flush=True)
        self._verdicts_before = [*verdicts]


def make_loggers(names: list[LoggerName], folder: str, project: str = "fedleak") -> list[Logger]:
    """Loggers of Lightning that write below a folder, or to the server that ``MLFLOW_TRACKING_URI`` names.

    W&B is offline, `wandb sync` sends it.

    Raises:
        InputError: the package of a logger is not installed, or it does not start.
    """
    limit_retries()
    return [_started(name, folder, project) for name in names]


def _started(name: LoggerName, folder: str, project: str) -> Logger:
    way_out = f"or leave out --logger {name}."
    try:
        if name == "csv":
            logger: Logger = CSVLogger(folder, name="csv")
        elif name == "wandb":
            logger = WandbLogger(save_dir=folder, project=project, name="watch", offline=True)
        elif name == "tensorboard":
            logger = TensorBoardLogger(folder, name="tensorboard")
        else:
            Path(folder).mkdir(parents=True, exist_ok=True)
            uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Path(folder).resolve()}/mlflow.db"
            logger = MLFlowLogger(project, run_name="watch", tracking_uri=uri)
            _ = logger.experiment  # connects now, not after the first audit
    except ModuleNotFoundError as error:
        raise InputError(
            expected=f"the package of the logger {name}",
            found=f"none: {str(error).splitlines()[0]}",
            way_out=f"Install it, {way_out}",
        ) from None
    except Exception as error:  # of the logger's package
        raise InputError(
            expected=f"a logger {name} that takes numbers",
            found=" ".join(str(error).split())[:200],
            way_out=f"Correct its settings, {way_out}",
        ) from None
    return logger


def log_look(loggers: list[Logger], look: Look) -> None:
    """Logs value, interval and verdict of each attack under each limit at the number of the round.

    A logger that fails is a warning and gets no more: the watch goes on.
    """
    numbers: dict[str, float] = {"watch/exceeded": float(look.overall == "exceeded")}
    for name, state in look.leaks.items():
        for part, value in _numbers(state).items():
            if value is not None:
                numbers[f"watch/{name}/{part}"] = value
    for logger in tuple(loggers):
        try:
            logger.log_metrics(numbers, step=look.round)
            logger.save()
        except Exception as error:  # of the logger's package
            loggers.remove(logger)
            reason = " ".join(str(error).split())[:200]
            _logger.warning(
                "%s gets no more numbers, it failed in round %d: %s", type(logger).__name__, look.round, reason
            )


def _numbers(state: LimitState) -> dict[str, float | None]:
    return {"value": state.value, "low": state.low, "high": state.high, "limit": state.at}
