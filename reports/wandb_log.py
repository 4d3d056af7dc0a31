"""Attack results in Weights & Biases: numbers to compare runs by, a table, and the report's figures."""

import functools
import html
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from reports.results import Result
from reports.settings import describe, differing

Show = Callable[[Sequence[Result], Sequence[tuple[str, str]]], None]
"""Shows results, and figures as captions and SVG texts."""
COLUMNS = ("attack", "setting", "metric", "mean", "std", "low", "high", "n", "seconds per victim", "paper", "source")


def leaks(results: Sequence[Result]) -> dict[str, float]:
    """The means by ``audit/ATTACK/METRIC``, where settings differ ``audit/ATTACK, SETTING/METRIC``."""
    keys = differing([result.setting for result in results])
    found = {}
    for result in results:
        name = ", ".join(part for part in (result.attack, describe(result.setting, keys)) if part)
        found[f"audit/{name}/{result.metric}"] = result.mean
    return found


def log_results(run: Any, results: Sequence[Result], figures: Sequence[tuple[str, str]]) -> None:
    """Adds results to a W&B run: numbers to its summary, with both ends of their intervals; a table; figures.

    Args:
        run: of `wandb.init`.
        results: the cells.
        figures: captions and SVG texts.
    """
    import wandb  # it takes a second, and most commands do without

    rows = [
        [
            *(r.attack, json.dumps(r.setting), r.metric, r.mean, r.std, *r.ci95, r.n, r.seconds_per_victim),
            *((None, None) if r.paper is None else (r.paper.value, r.paper.source)),
        ]
        for r in results
    ]
    pages = {
        f"audit/figure {number}": wandb.Html(f"<p>{html.escape(caption)}</p>{svg}", inject=False)
        for number, (caption, svg) in enumerate(figures, start=1)
    }
    run.log({"audit/results": wandb.Table(columns=list(COLUMNS), data=rows), **pages})
    for name, result in zip(leaks(results), results, strict=True):
        run.summary[name] = result.mean
        run.summary[f"{name} low"], run.summary[f"{name} high"] = result.ci95


def shows_in_wandb(project: str | None, directory: Path) -> list[Show]:
    """What shows results as a W&B run of their own; nothing without a project.

    Args:
        project: where the run goes.
        directory: where its files go; they stay there, until ``wandb sync``, where nobody has logged in.
    """
    return [] if project is None else [functools.partial(_show, project, directory)]


def _show(project: str, directory: Path, results: Sequence[Result], figures: Sequence[tuple[str, str]]) -> None:
    import wandb

    chosen = "WANDB_MODE" in os.environ or wandb.api.api_key is not None
    mode: Literal["offline"] | None = None if chosen else "offline"
    with wandb.init(project=project, dir=str(directory), name=directory.name, job_type="attack", mode=mode) as run:
        log_results(run, results, figures)
