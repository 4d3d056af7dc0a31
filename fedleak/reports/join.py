"""Page for several runs, drawn from the evaluations that they stored."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedleak.core.progress import say_what_starts
from fedleak.core.provenance import command, published
from fedleak.evaluation.changes import changes
from fedleak.evaluation.evaluation import Evaluation, joined
from fedleak.evaluation.persons import over_clients, rows_without_clients
from fedleak.evaluation.reasons import Reason
from fedleak.evaluation.run import Run
from fedleak.evaluation.scores import setting_columns, stacked, with_setting
from fedleak.evaluation.stored_run import StoredRun, read_run, store_run
from fedleak.reports.change_tables import stored_changes
from fedleak.reports.files import Format
from fedleak.reports.sections import metrics_of
from fedleak.reports.write_page import write_page


def join_runs(directories: Sequence[Path], out: Path, formats: Sequence[Format] = (), *, persons: bool = False) -> Run:
    """Joins runs that were stored in folders, stores the whole as a run, and writes one page.

    Only with `persons` does it show single clients, of runs that were written with them.

    Runs that have a cell in common differ in a setting ``run``. What changed from the first run to each other one is
    compared, if they have an attack, a metric and a data set in common.

    Raises:
        InputError: there is no run in a folder, or a damaged one.
    """
    say_what_starts(f"reading the results of {len(directories)} runs")
    stored = [read_run(directory) for directory in directories]
    runs = [run.results for run in stored if run.results is not None]  # of all: they are stored
    evaluations = [run.evaluation for run in stored]
    names = [run.experiment for run in runs]
    # Runs of one name are told apart by their folders.
    if len(set(names)) < len(names):
        names = [str(directory) for directory in directories]
    if not persons:  # also joins those of runs that were written with --persons and without
        evaluations = [over_clients(evaluation) for evaluation in evaluations]
    if "pdf" in formats and any(evaluation.figures for evaluation in evaluations):
        print("figures that steps of a table drew are written as SVG only: the files of a run may be a stranger's")
    reference, *later_runs = [
        StoredRun(name, evaluation, run.data, run)
        for name, evaluation, run in zip(names, evaluations, runs, strict=True)
    ]
    # Changes are compared before runs are named apart: a run's name as a setting would leave no cells in common.
    compared = [changes(reference, later) for later in later_runs]
    name_curves(evaluations, names)
    runs = name_cells(runs, evaluations, names)
    details: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        for label, rows in run.details.items():
            details[f"{label} in {run.experiment}"] = rows if persons else rows_without_clients(rows)
    joined_run = dataclasses.replace(
        joined_results(runs),
        command=command() if persons else published(command()),
        changes=[stored_changes(comparison) for comparison in compared if comparison.rows],
        details=details,
    )
    evaluation = joined(evaluations)
    for run, evaluation_of_run in zip(runs, evaluations, strict=True):
        for printed in run.details:
            label_in_run = dataclasses.replace(evaluation_of_run.label(printed), run=run.experiment)
            evaluation.labels[str(label_in_run)] = label_in_run
    store_run(out, joined_run, evaluation, joined_run.data)
    write_page(
        out,
        joined_run,
        evaluation,
        joined_run.results,
        metrics_of(joined_run.results),
        parts=runs,
        formats=formats,
        persons=persons,
    )
    return joined_run


def name_curves(evaluations: Sequence[Evaluation], names: Sequence[str]) -> None:
    """Gives curves the names of their runs, if two runs have a curve of the same label."""
    labels = [label for evaluation in evaluations for label in evaluation.roc]
    if len(set(labels)) == len(labels):
        return
    for evaluation, name in zip(evaluations, names, strict=True):
        _label_curves(evaluation, name)


def _label_curves(evaluation: Evaluation, run: str) -> None:
    """Adds a run's name, as a setting, to the labels of its curves."""
    curves = {}
    for printed, curve in evaluation.roc.items():
        label = evaluation.label(printed)
        setting = f"{label.setting}, {run}" if label.setting else run
        of_run = dataclasses.replace(label, setting=setting)
        curves[str(of_run)] = curve
        evaluation.labels[str(of_run)] = of_run
    evaluation.roc = curves


def name_cells(runs: Sequence[Run], evaluations: Sequence[Evaluation], names: Sequence[str]) -> list[Run]:
    """Runs, of which those with a cell that another one has too get their name as a setting, also in evaluations."""
    # A cell is an attack, a metric and a setting; whether each row's cell stands in another row, run by run.
    cells = stacked([run.results for run in runs])
    repeated = cells.duplicated(["attack", "metric", *setting_columns(cells)], keep=False).to_numpy()
    repeated_by_run = np.split(repeated, np.cumsum([len(run.results) for run in runs])[:-1])
    named = []
    for run, evaluation, name, in_other_runs in zip(runs, evaluations, names, repeated_by_run, strict=True):
        if not in_other_runs.any():
            named.append(run)
            continue
        evaluation.scores = with_setting(evaluation.scores, run=name)
        evaluation.profiles = with_setting(evaluation.profiles, run=name)
        results = with_setting(run.results, run=name)
        differences = with_setting(run.differences, run=name)
        named.append(dataclasses.replace(run, results=results, differences=differences))
    return named


def joined_results(runs: Sequence[Run]) -> Run:
    """The results of several runs as those of one; seed, commit, versions and hardware are those of the first."""
    # Lists one after another; of reasons by attack, that of the last run that has one.
    answers: list[dict[str, Any]] = []
    causes: list[dict[str, Any]] = []
    gate: list[dict[str, Any]] = []
    read_back: list[str] = []
    false_declarations: list[str] = []
    not_run: dict[str, Reason] = {}
    unrelated: dict[str, Reason] = {}
    system_texts: dict[str, list[str]] = {}
    for run in runs:
        answers += run.answers
        causes += run.causes
        gate += run.gate
        read_back += run.read_back
        false_declarations += run.false_declarations
        not_run |= run.not_run
        unrelated |= run.unrelated
        for name, text in run.system.items():
            system_texts.setdefault(name, []).append(text)
    return dataclasses.replace(
        runs[0],
        experiment=" + ".join(run.experiment for run in runs),
        data={key: _listed(run.data[key] for run in runs) for key in ("name", "sha256")},
        seconds=sum(run.seconds for run in runs),
        results=stacked([run.results for run in runs]),
        answers=answers,
        not_run=not_run,
        causes=causes,
        differences=stacked([run.differences for run in runs]),
        gate=gate,
        read_back=read_back,
        learner_check=_listed((run.learner_check for run in runs if run.learner_check), "; "),
        learner_wrong=any(run.learner_wrong for run in runs),
        false_declarations=[*dict.fromkeys(false_declarations)],
        system={name: _listed(texts, "; ") for name, texts in system_texts.items()},
        unrelated=unrelated,
        recording=None,
    )


def _listed(texts: Iterable[str], separator: str = " ") -> str:
    """Different texts in a line."""
    return separator.join(dict.fromkeys(texts))
