"""Attack results in Weights & Biases: numbers to compare runs by, a table, and the report's figures."""

import functools
import html
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from evaluation.labels import differing
from evaluation.scores import records, setting_of
from reports.tables import described_settings

Show = Callable[[pd.DataFrame, Sequence[tuple[str, str]]], None]
"""Shows results, and figures as captions and SVG texts."""
COLUMNS = ("attack", "setting", "metric", "mean", "std", "low", "high", "n", "seconds per victim", "paper", "source")


def leaks(results: pd.DataFrame) -> dict[str, float]:
    """The means by ``audit/ATTACK/METRIC``, where settings differ ``audit/ATTACK, SETTING/METRIC``."""
    return {name: row["mean"] for name, row in _named(results)}


def _named(results: pd.DataFrame) -> list[tuple[str, dict[str, Any]]]:
    settings = described_settings(results, differing(results))
    parts = zip(results["attack"], settings, results["metric"], strict=True)
    names = [f"audit/{', '.join(part for part in (attack, where) if part)}/{metric}" for attack, where, metric in parts]
    return list(zip(names, records(results), strict=True))


def log_results(run: Any, results: pd.DataFrame, figures: Sequence[tuple[str, str]]) -> None:
    """Adds results to a W&B run: numbers to its summary, with both ends of their intervals; a table; figures.

    Args:
        run: of `wandb.init`.
        results: the cells.
        figures: captions and SVG texts.
    """
    import wandb  # it takes a second, and most commands do without

    named = _named(results)
    numbers = [name.replace(" ", "_") for name in COLUMNS[2:]]
    rows = [[row["attack"], json.dumps(setting_of(row)), *(_plain(row[name]) for name in numbers)] for _, row in named]
    pages = {
        f"audit/figure {number}": wandb.Html(f"<p>{html.escape(caption)}</p>{svg}", inject=False)
        for number, (caption, svg) in enumerate(figures, start=1)
    }
    run.log({"audit/results": wandb.Table(columns=list(COLUMNS), data=rows), **pages})
    for name, row in named:
        run.summary[name], run.summary[f"{name} low"], run.summary[f"{name} high"] = (
            row["mean"],
            row["low"],
            row["high"],
        )


def _plain(value: Any) -> Any:
    return None if value != value else value


def shows_in_wandb(project: str | None, directory: Path) -> list[Show]:
    """What shows results as a W&B run of their own; nothing without a project.

    Args:
        project: where the run goes.
        directory: where its files go; they stay there, until ``wandb sync``, where nobody has logged in.
    """
    return [] if project is None else [functools.partial(_show, project, directory)]


def _show(project: str, directory: Path, results: pd.DataFrame, figures: Sequence[tuple[str, str]]) -> None:
    import wandb

    chosen = "WANDB_MODE" in os.environ or wandb.api.api_key is not None
    mode: Literal["offline"] | None = None if chosen else "offline"
    with wandb.init(project=project, dir=str(directory), name=directory.name, job_type="attack", mode=mode) as run:
        log_results(run, results, figures)
