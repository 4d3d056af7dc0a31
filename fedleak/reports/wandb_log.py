"""Results in Weights & Biases: numbers, a table, and the figures of the report."""

import functools
import html
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from fedleak.evaluation.captioned_figure import CaptionedFigure
from fedleak.evaluation.scores import setting_of
from fedleak.reports.leak_numbers import leak_numbers, named_results

Show = Callable[[pd.DataFrame, Sequence[CaptionedFigure]], None]
"""Function that shows results and figures."""
COLUMNS = ("attack", "setting", "metric", "mean", "std", "low", "high", "n", "seconds per victim", "paper", "source")


def log_results(run: Any, results: pd.DataFrame, figures: Sequence[CaptionedFigure]) -> None:
    """Adds results to a run of `wandb.init`: numbers with their intervals to the summary, a table, and figures."""
    import wandb  # slow to import, and rarely needed

    columns = [name.replace(" ", "_") for name in COLUMNS[2:]]
    rows = []
    for _, row in named_results(results):
        # W&B has None for what is missing, the results NaN.
        values = [None if row[name] != row[name] else row[name] for name in columns]
        rows.append([row["attack"], json.dumps(setting_of(row)), *values])
    logged = {"audit/results": wandb.Table(columns=list(COLUMNS), data=rows)}
    for position, drawing in enumerate(figures, start=1):
        page = f"<p>{html.escape(drawing.caption)}</p>{drawing.svg}"
        logged[f"audit/figure {position}"] = wandb.Html(page, inject=False)
    run.log(logged)
    for name, number in leak_numbers(results).items():
        run.summary[name] = number


def shows_in_wandb(project: str | None, directory: Path) -> list[Show]:
    """Functions that show results as a W&B run of their own; none without a project.

    The files of the run stay in the folder until ``wandb sync`` without a login.
    """
    if project is None:
        return []
    return [functools.partial(_show, project, directory)]


def _show(project: str, directory: Path, results: pd.DataFrame, figures: Sequence[CaptionedFigure]) -> None:
    import wandb

    # Without a login W&B would ask for one, so it stays offline unless the user chose.
    has_choice = "WANDB_MODE" in os.environ or wandb.api.api_key is not None
    mode: Literal["offline"] | None = None if has_choice else "offline"
    with wandb.init(project=project, dir=str(directory), name=directory.name, job_type="attack", mode=mode) as run:
        log_results(run, results, figures)
