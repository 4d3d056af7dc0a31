"""Page for several runs, drawn from the files that they left."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedleak.core.errors import InputError
from fedleak.core.progress import say_what_starts
from fedleak.core.provenance import command, published
from fedleak.evaluation.changes import changes
from fedleak.evaluation.evaluation import Evaluation, joined
from fedleak.evaluation.persons import over_clients, rows_without_clients
from fedleak.evaluation.scores import AttackInfo, records, setting_columns, stacked, with_setting
from fedleak.evaluation.stored import EVALUATION, DamagedError, StoredRun, read_evaluation
from fedleak.reports.change_tables import stored_changes
from fedleak.reports.files import Format
from fedleak.reports.run import Run
from fedleak.reports.sections import metrics_of
from fedleak.reports.write_page import write_page


def join_runs(directories: Sequence[Path], out: Path, formats: Sequence[Format] = (), *, persons: bool = False) -> Run:
    """Joins the results of several runs, folders with a results.json, and writes one page.

    Only with `persons` does it show single clients, of runs that were written with them.

    Runs that have a cell in common differ in a setting ``run``. What changed from the first run to each other one is
    compared, if they have an attack, a metric and a data set in common.

    Raises:
        InputError: a results.json is missing, or a file is damaged.
    """
    say_what_starts(f"reading the results of {len(directories)} runs")
    runs = [Run.read(directory / "results.json") for directory in directories]
    names = [run.experiment for run in runs]
    names = names if len(set(names)) == len(names) else [str(directory) for directory in directories]
    evaluations = [_evaluation(directory, run) for directory, run in zip(directories, runs, strict=True)]
    runs = [_with_reasons(run, evaluation) for run, evaluation in zip(runs, evaluations, strict=True)]
    if not persons:  # also joins those of runs that were written with --persons and without
        evaluations = [over_clients(evaluation) for evaluation in evaluations]
    if "pdf" in formats and any(evaluation.figures for evaluation in evaluations):
        print("figures that steps of a table drew are written as SVG only: the files of a run may be a stranger's")
    stored = [
        StoredRun(name, evaluation, run.data) for name, evaluation, run in zip(names, evaluations, runs, strict=True)
    ]
    compared = [changes(stored[0], later) for later in stored[1:]]
    labels = [label for evaluation in evaluations for label in evaluation.roc]
    if len(set(labels)) < len(labels):
        for evaluation, name in zip(evaluations, names, strict=True):
            _label_curves(evaluation, name)
    cells = stacked([run.results for run in runs])
    repeated = cells.duplicated(["attack", "metric", *setting_columns(cells)], keep=False).to_numpy()
    parts = np.split(repeated, np.cumsum([len(run.results) for run in runs])[:-1])
    for place, (evaluation, name) in enumerate(zip(evaluations, names, strict=True)):
        if parts[place].any():
            evaluation.scores = with_setting(evaluation.scores, run=name)
            evaluation.profiles = with_setting(evaluation.profiles, run=name)
            results, differences = (with_setting(t, run=name) for t in (runs[place].results, runs[place].differences))
            runs[place] = dataclasses.replace(runs[place], results=results, differences=differences)
    named = dict.fromkeys(key for run in runs for key in run.system)
    whole = dataclasses.replace(
        runs[0],
        experiment=" + ".join(run.experiment for run in runs),
        command=command() if persons else published(command()),
        data={key: " ".join(dict.fromkeys(run.data[key] for run in runs)) for key in ("name", "sha256")},
        seconds=sum(run.seconds for run in runs),
        results=stacked([run.results for run in runs]),
        not_run={name: reason for run in runs for name, reason in run.not_run.items()},
        causes=[cause for run in runs for cause in run.causes],
        differences=stacked([run.differences for run in runs]),
        gate=[verdict for run in runs for verdict in run.gate],
        read_back=[key for run in runs for key in run.read_back],
        learner_check="; ".join(dict.fromkeys(run.learner_check for run in runs if run.learner_check)),
        changes=[stored_changes(one) for one in compared if one.rows],
        learner_wrong=any(run.learner_wrong for run in runs),
        false_declarations=[*dict.fromkeys(sentence for run in runs for sentence in run.false_declarations)],
        system={key: "; ".join(dict.fromkeys(run.system[key] for run in runs if key in run.system)) for key in named},
        unrelated={name: reason for run in runs for name, reason in run.unrelated.items()},
        recording=None,
        details={
            f"{label} in {run.experiment}": rows if persons else rows_without_clients(rows)
            for run in runs
            for label, rows in run.details.items()
        },
    )
    whole.write(out)
    evaluation_of_all = joined(evaluations)
    for run, evaluation in zip(runs, evaluations, strict=True):
        for printed in run.details:
            label = dataclasses.replace(evaluation.label(printed), run=run.experiment)
            evaluation_of_all.labels[str(label)] = label
    write_page(
        out,
        whole,
        evaluation_of_all,
        whole.results,
        metrics_of(whole.results),
        parts=runs,
        formats=formats,
        persons=persons,
    )
    return whole


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


def _with_reasons(run: Run, evaluation: Evaluation) -> Run:
    """A run with the fields of those reasons that its stored evaluation has, instead of their sentences."""
    stored = {**evaluation.not_run, **evaluation.unrelated}
    return dataclasses.replace(
        run,
        not_run={name: stored.get(name, reason) for name, reason in run.not_run.items()},
        unrelated={name: stored.get(name, reason) for name, reason in run.unrelated.items()},
    )


def _evaluation(directory: Path, run: Run) -> Evaluation:
    """The stored evaluation of a run; its descriptions of the attacks alone if there is none."""
    try:
        return read_evaluation(directory / EVALUATION)[0]
    except FileNotFoundError:
        fields = {field.name for field in dataclasses.fields(AttackInfo)}
        rows = records(run.results.drop_duplicates("attack"))
        lines: dict[str, AttackInfo] = {}
        for row in rows:
            unbounded = (row["unbounded"],) if row["unbounded"] else ()
            known = {name: value for name, value in row.items() if name in fields}
            lines[row["attack"]] = AttackInfo(**{**known, "unbounded": unbounded})
        return Evaluation(lines=lines)
    except DamagedError as error:
        raise InputError(
            expected=f"{EVALUATION} as fedleak writes it",
            found=f"one that is {error} in {directory}",
            way_out="Write it anew with fedleak, or delete it: the page then lacks its figures.",
        ) from None
