"""MLflow: the numbers of a run as metrics, through Lightning's logger."""

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fedleak.core.errors import InputError
from fedleak.core.provenance import published
from fedleak.evaluation.run import Run
from fedleak.reports.exporters.exporter import Exporter
from fedleak.reports.leak_numbers import leak_numbers

_NOT_TAKEN = re.compile(r"[^\w.\-/ ]")
"""Characters that MLflow takes in no name of a metric."""


def limit_retries() -> None:
    """Limits the retries of MLflow's client to two: its seven take four minutes where no server answers."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")


@dataclass(frozen=True)
class MLflow(Exporter):
    """A run of MLflow with the metrics that ``--wandb`` gives: means, and the ends of their intervals.

    Names are ``audit/ATTACK/METRIC`` with `` low`` and `` high`` for the ends; a comma before a setting becomes a dash.
    A number that is not finite is left out. Parameters are the command, the commit, the seed, and name and hash of the
    data; client names are in none. The tags for the name of the account and the path of the program are ``fedleak``.

    Attributes:
        tracking_uri: address of the server, or a folder as ``file:DIR``; by default that of the environment variable
            ``MLFLOW_TRACKING_URI``.
        experiment: name of the experiment.
    """

    name: ClassVar[str] = "mlflow"

    tracking_uri: str | None = None
    experiment: str = "fedleak"

    def export(self, run: Run, directory: Path) -> str:
        from lightning.pytorch.loggers import MLFlowLogger  # slow to import

        try:
            from mlflow.exceptions import MlflowException
        except ImportError as error:
            way_out = "Install the extra: in the checkout, pip install ./recorder '.[mlflow]'."
            raise InputError(expected="the package mlflow", found=str(error), way_out=way_out) from None
        limit_retries()
        # Without an address the logger takes that of the environment.
        address: dict[str, Any] = {}
        if self.tracking_uri is not None:
            address["tracking_uri"] = self.tracking_uri
        numbers = {}
        for name, number in leak_numbers(run.results).items():
            if _finite(number):
                numbers[_NOT_TAKEN.sub("-", name)] = number
        parameters = {"command": published(run.command), "commit": run.commit, "seed": run.seed}
        parameters |= {f"data {key}": value for key, value in run.data.items()}
        try:
            # MLflow's client tags a run with the name of the account and the path of the program, if nobody else does.
            tags = {"mlflow.user": "fedleak", "mlflow.source.name": "fedleak"}
            logger = MLFlowLogger(self.experiment, run.experiment, tags=tags, **address)
            logger.log_hyperparams(parameters)
            logger.log_metrics(numbers, step=0)
            logger.finalize("success")
        except MlflowException as error:
            raise InputError(
                expected="a server of MLflow that takes metrics",
                found=" ".join(str(error).split())[:200],
                way_out="Start the server, or correct --to.tracking_uri.",
            ) from None
        return f"{len(numbers)} metrics in run {logger.run_id} of experiment {self.experiment}"


def _finite(number: float | None) -> bool:
    return number is not None and math.isfinite(number)
