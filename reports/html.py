"""Report of a run: a self-contained HTML page."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from datamodules.io.files import write_whole
from evaluation.captioned_figure import CaptionedFigure
from evaluation.failures import reasons
from evaluation.scores import records
from protocol.metric_table import metric
from reports.headline import headline, is_generated
from reports.run import Run
from reports.sections import BASELINES, Section
from reports.tables import DATA, Table

_HALF_PAGE = 520
"""Largest width in points of a figure that fits into half of the page."""
TEMPLATES = Path(__file__).parent / "templates"
GENERATED = "The data are generated: their numbers show that the attacks run, and nothing about real people's data."


def write_report(
    directory: Path,
    run: Run,
    *,
    sections: Sequence[Section] = (),
    differences: Sequence[Table] = (),
    changes: Sequence[tuple[Sequence[str], Sequence[Table]]] = (),
    parts: Sequence[Run] = (),
    figures: Sequence[CaptionedFigure] = (),
    causes: Sequence[str] = (),
) -> Path:
    """Writes report.html into a folder, with the main figure first.

    `parts` are the runs that `run` joins, if any; `changes` sentences and tables on what changed from another run.
    """
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    results, check = run.results, run.learner_check
    learner = [f"{check[:1].upper()}{check[1:]}."] if check else []
    page = environment.get_template("report.html.j2").render(
        run=run,
        headline=headline(results, run.differences),
        notes=[
            *_generated(results),
            *learner,
            *(str(verdict.get("message", "")) for verdict in run.gate),
            *filter(None, [run.advice]),
        ],
        sections=sections,
        differences=differences,
        changes=changes,
        missing=reasons(run.not_run),
        causes=causes,
        baselines=BASELINES,
        binary=any(metric(name).binary for name in set(results["metric"])),
        figures=[(drawing.caption, drawing.svg, "wide" if _is_wide(drawing.svg) else "") for drawing in figures],
        threat_models=_threat_models(parts or [run]),
    )
    path = directory / "report.html"
    write_whole(path, page.encode())
    return path


def _generated(results: pd.DataFrame) -> list[str]:
    """The remark on generated data, with their names if there are others too; none without them."""
    generated = is_generated(results)
    if not generated.any() or generated.all():
        return [GENERATED] if generated.any() else []
    return [GENERATED.replace("The data", f"The data of {', '.join(dict.fromkeys(results[DATA][generated]))}")]


def _is_wide(svg: str) -> bool:
    """Whether a figure needs the whole width of the page."""
    width = re.search(r'width="([\d.]+)pt"', svg)
    return width is not None and float(width[1]) > _HALF_PAGE


def _threat_models(runs: Sequence[Run]) -> Mapping[str, dict[str, Any]]:
    """Threat model (``sees``, ``knows``, ``active``) by attack, with the run's name where runs differ."""
    found: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for run in runs:
        known = run.results[(run.results["sees"] != "") | (run.results["knows"] != "")]
        for row in records(known.drop_duplicates(["attack", "sees", "knows", "active"])):
            model = {name: row[name] for name in ("sees", "knows", "active")}
            if model not in found[row["attack"]].values():
                found[row["attack"]][f"{row['attack']} in {run.experiment}"] = model
    return {
        name if len(models) > 1 else attack: model for attack, models in found.items() for name, model in models.items()
    }
