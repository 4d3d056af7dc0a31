"""Output of a run: results.json, scores.csv, report.html, and the table on the screen."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from datamodules.io.files import write_whole
from evaluation.derived import derived
from evaluation.diagnosis import Explain, sentences
from evaluation.evaluate import reasons
from evaluation.gate import Gate
from evaluation.runner import Evaluation, joined
from evaluation.scores import concat, describe, differing, plain_records, records, setting_of, stacked
from evaluation.summary import paired_differences, summarise
from reports.figures import drawings
from reports.html import write_report
from reports.papers import with_papers
from reports.provenance import command, commit, hardware, versions
from reports.run import Run
from reports.tables import text_table
from reports.wandb_log import Show


def write_run(
    evaluation: Evaluation,
    *,
    directory: Path,
    experiment: str,
    data: Mapping[str, str],
    seed: int,
    seconds: float,
    metrics: Sequence[str],
    explain: Explain | None = None,
    gate: Gate | None = None,
    read_back: Sequence[str] = (),
    shows: Sequence[Show] = (),
) -> Run:
    """Writes the files of a run and prints its table.

    Args:
        evaluation: scores.
        directory: folder of the files.
        experiment: name of the run.
        data: name and hash of the data.
        seed: first seed.
        seconds: wall time.
        metrics: metrics to report.
        explain: function that explains failed attacks, None for no explanation.
        gate: function that checks limits, None for no limits.
        read_back: keys of the cells that an earlier run had finished.
        shows: functions that show the results and figures elsewhere.
    """
    scores = evaluation.scores
    reported = dataclasses.replace(evaluation, scores=scores[scores["metric"].isin(metrics)])
    everything = with_papers(stacked([summarise(reported), derived(evaluation)]))
    results = everything[everything["metric"].isin(metrics)].reset_index(drop=True)
    causes = [] if explain is None else explain(results)
    verdicts = [] if gate is None else gate(results, evaluation.missing)
    run = Run(
        *(experiment, command(), seed, commit(), versions(), dict(data), hardware(), seconds, results),
        dict(evaluation.missing),
        [dataclasses.asdict(cause) for cause in causes],
        paired_differences(reported),
        [dataclasses.asdict(verdict) for verdict in verdicts],
        list(read_back),
        {label: plain_records(table) for label, table in evaluation.details.items()},
    )
    run.write(directory)
    for name, table in (("scores", scores), ("compositions", evaluation.profiles)):
        if len(table):
            write_whole(directory / f"{name}.csv", table.to_csv(index=False).encode())
    figures = drawings(evaluation, everything, metrics) + evaluation.figures
    missing, explained = reasons(evaluation.missing), sentences(causes)
    page = write_report(directory, run, figures=figures, missing=missing, causes=explained)
    _print(results, page)
    if explained:
        print("\n".join(["why attacks failed:", *(f"  {sentence}" for sentence in explained)]))
    for show in shows:
        show(results, figures)
    return run


def combine(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Evaluation of all cells of a table, with ROC curves by setting."""
    keys = differing(concat([evaluation.scores.head(1) for evaluation in evaluations])) | {"data"}
    labelled = []
    for evaluation in evaluations:
        cell = next(iter(records(evaluation.scores.head(1))), {})
        setting = describe(setting_of(cell), keys)
        curves = {f"{label} ({setting})": curve for label, curve in evaluation.roc.items()}
        details = {f"{label} ({setting})": table for label, table in evaluation.details.items()}
        labelled.append(dataclasses.replace(evaluation, roc=curves, details=details))
    return joined(labelled)


def join_runs(directories: Sequence[Path], out: Path) -> Run:
    """Joins the results of several runs and writes one page."""
    runs = [Run.read(directory / "results.json") for directory in directories]
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
        details={f"{label} in {run.experiment}": rows for run in runs for label, rows in run.details.items()},
    )
    whole.write(out)
    _print(whole.results, write_report(out, whole, parts=runs))
    return whole


def _print(results: pd.DataFrame, page: Path) -> None:
    print(text_table(results))
    print(f"report: {page}")
