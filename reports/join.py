"""Page for several runs, drawn from the files that they left."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from attacks.estimates import ROC_GRID
from evaluation.runner import Evaluation, joined
from evaluation.scores import SCHEMA, SETTING, Line, records, setting_columns, stacked, with_setting
from protocol.errors import InputError, require
from protocol.provenance import command
from reports.files import Format
from reports.questions import metrics_of
from reports.run import Run
from reports.write_run import COMPOSITIONS, ROC, SCORES, write_page

_PROFILES = {"attack": "object", "seed": "int64", "round": "int64", "victim": "int64", "class": "int64"}
_PROFILES |= dict.fromkeys(("true", "inferred", "low", "high"), "float64")
_CURVES = {"label": "object", "clients": "int64", "fpr": "float64", "tpr": "float64"}
_WAY_OUT = "Write it anew with attack.py, or delete it: the page then lacks its figures."


def join_runs(directories: Sequence[Path], out: Path, formats: Sequence[Format] = ()) -> Run:
    """Joins the results of several runs and writes one page.

    Runs that have a cell in common differ in a setting ``run``. The figures of tables' steps are only in the runs' own
    pages.

    Args:
        directories: folders that hold a results.json.
        out: folder of the page.
        formats: formats of further files, see `reports.files`.

    Raises:
        InputError: a results.json is missing, or a file is damaged.
    """
    runs = [Run.read(directory / "results.json") for directory in directories]
    names = [run.experiment for run in runs]
    names = names if len(set(names)) == len(names) else [str(directory) for directory in directories]
    found = [_evaluation(directory, run) for directory, run in zip(directories, runs, strict=True)]
    labels = [label for one in found for label in one.roc]
    if len(set(labels)) < len(labels):
        for one, name in zip(found, names, strict=True):
            one.roc = {_labelled(label, name): curve for label, curve in one.roc.items()}
    cells = stacked([run.results for run in runs])
    repeated = cells.duplicated(["attack", "metric", *setting_columns(cells)], keep=False).to_numpy()
    parts = np.split(repeated, np.cumsum([len(run.results) for run in runs])[:-1])
    for place, (one, name) in enumerate(zip(found, names, strict=True)):
        if parts[place].any():
            one.scores, one.profiles = with_setting(one.scores, run=name), with_setting(one.profiles, run=name)
            results, differences = (with_setting(t, run=name) for t in (runs[place].results, runs[place].differences))
            runs[place] = dataclasses.replace(runs[place], results=results, differences=differences)
    whole = dataclasses.replace(
        runs[0],
        experiment=" + ".join(run.experiment for run in runs),
        command=command(),
        data={key: " ".join(dict.fromkeys(run.data[key] for run in runs)) for key in ("name", "sha256")},
        seconds=sum(run.seconds for run in runs),
        results=stacked([run.results for run in runs]),
        not_run={name: reason for run in runs for name, reason in run.not_run.items()},
        causes=[cause for run in runs for cause in run.causes],
        differences=stacked([run.differences for run in runs]),
        gate=[verdict for run in runs for verdict in run.gate],
        read_back=[key for run in runs for key in run.read_back],
        learner_check="; ".join(dict.fromkeys(run.learner_check for run in runs if run.learner_check)),
        details={f"{label} in {run.experiment}": rows for run in runs for label, rows in run.details.items()},
    )
    whole.write(out)
    write_page(out, whole, joined(found), whole.results, metrics_of(whole.results), parts=runs, formats=formats)
    return whole


def _labelled(label: str, run: str) -> str:
    """Label of a curve with a run's name as a setting."""
    return f"{label.removesuffix(')')}, {run})" if label.endswith(")") else f"{label} ({run})"


def _evaluation(directory: Path, run: Run) -> Evaluation:
    """What a run's files hold of its evaluation; a file that is not there adds nothing."""
    fields = {field.name for field in dataclasses.fields(Line)}
    lines = {
        row["attack"]: Line(**{key: value for key, value in row.items() if key in fields})
        for row in records(run.results.drop_duplicates("attack"))
    }
    evaluation = Evaluation(lines=lines, profiles=_read(directory / COMPOSITIONS, _PROFILES, run.results))
    scores = _read(directory / SCORES, SCHEMA, run.results)
    if len(scores):
        evaluation.scores = scores
    curves = _read(directory / ROC, _CURVES, run.results)
    for label, own in curves.groupby("label", sort=False) if len(curves) else ():
        found = f"{len(own)} points of {label!r:.60} in {directory / ROC}"
        require(len(own) == len(ROC_GRID), f"a curve of {len(ROC_GRID)} points", found, _WAY_OUT)
        clients = int(own["clients"].iloc[0])
        evaluation.roc[str(label)] = torch.tensor(own["tpr"].tolist(), dtype=torch.float64) * clients, clients
    return evaluation


def _read(path: Path, schema: Mapping[str, str], results: pd.DataFrame) -> pd.DataFrame:
    """Table of a file with the settings' values as in the results; empty if there is no file."""
    if not path.is_file():
        return pd.DataFrame()
    try:
        texts = pd.read_csv(path, dtype=str, keep_default_na=False)
        table = texts[[*schema]].replace("", "nan").astype(dict(schema))
    except (ValueError, KeyError, OverflowError) as error:
        raise InputError(
            expected=f"{path.name} as attack.py writes it",
            found=f"{type(error).__name__}: {error!s:.120} in {path}",
            way_out=_WAY_OUT,
        ) from None
    for key in map(str, texts):
        if key.startswith(SETTING):
            values = {str(value): value for value in results.get(key, ())}
            table[key] = pd.Series([values.get(text, text) or None for text in texts[key]], dtype=object)
    return table
