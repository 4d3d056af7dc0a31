"""Output of a run: its stored results, tables of scores, verdicts, page, and the table on the screen."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedleak.core.hardware import hardware
from fedleak.core.io.files import write_whole
from fedleak.core.provenance import command, commit, published, versions
from fedleak.core.seeding import secret_key
from fedleak.evaluation.added_bits import false_bounds
from fedleak.evaluation.advice import NOT_SEEN, advice, outcomes_under_defences
from fedleak.evaluation.answers import leading, plain, recorded_answers
from fedleak.evaluation.as_recorded import as_recorded
from fedleak.evaluation.attack_run import TRACEBACKS
from fedleak.evaluation.auditing import AuditResult
from fedleak.evaluation.changes import changes
from fedleak.evaluation.comparisons import Cells
from fedleak.evaluation.evaluation import Evaluation, joined
from fedleak.evaluation.gate import Gate
from fedleak.evaluation.labels import Label
from fedleak.evaluation.near_guessing import sentences
from fedleak.evaluation.persons import in_order_of_persons, over_clients, without_persons
from fedleak.evaluation.run import Run
from fedleak.evaluation.scores import concat, describe, differing, plain_records, records, setting_of
from fedleak.evaluation.stored_run import StoredRun, store_run
from fedleak.evaluation.summary import paired_differences
from fedleak.evaluation.unanswered import unanswered
from fedleak.reports.change_tables import stored_changes
from fedleak.reports.exporters.sarif import write_gate_alerts
from fedleak.reports.figures.report_figures import roc_table
from fedleak.reports.files import Format
from fedleak.reports.junit import write_gate
from fedleak.reports.papers import with_papers
from fedleak.reports.recorded_places import recorded_places
from fedleak.reports.system import system_lines
from fedleak.reports.wandb_log import Show
from fedleak.reports.write_page import write_page

SCORES = "scores.csv"
COMPOSITIONS = "compositions.csv"
ROC = "roc.csv"


def write_run(
    audit_result: AuditResult,
    *,
    directory: Path,
    experiment: str | None = None,
    gate: Gate | None = None,
    read_back: Sequence[str] = (),
    shows: Sequence[Show] = (),
    formats: Sequence[Format] = (),
    persons: bool = False,
    key: bytes | None = None,
    reference: StoredRun | None = None,
) -> Run:
    """Writes the files of a run and prints its table.

    Args:
        audit_result: what was evaluated.
        directory: folder of the files.
        experiment: name of the run; None for that of the folder.
        gate: function that checks limits, None for no limits.
        read_back: keys of the cells that an earlier run had finished.
        shows: functions that show the results and figures elsewhere.
        formats: formats of further files, see `fedleak.reports.files`.
        persons: whether the files hold pseudonyms and client numbers instead of new numbers, and the page, figures and
            tables single clients instead of numbers over several, see `fedleak.evaluation.persons`.
        key: secret key of the new numbers; None for that of `secret_key`.
        reference: run to compare with; None for none.
    """
    name = experiment or directory.resolve().name
    evaluation = audit_result.evaluation
    everything = with_papers(audit_result.everything)
    results = everything[everything["metric"].isin(audit_result.metrics)].reset_index(drop=True)
    # Limits and changes are about the recorded clients, who have other numbers in what is written.
    changed = []
    if reference is not None:
        audited = StoredRun(name, evaluation, audit_result.data, summary=results)
        changed = [stored_changes(changes(reference, audited, key=key))]
    written = evaluation if persons else named_by_key(evaluation, key)
    run = results_of(
        audit_result,
        results,
        written,
        gate=gate,
        experiment=name,
        command_line=command() if persons else published(command()),
        read_back=read_back,
        changed=changed,
    )
    store_run(directory, run, written, audit_result.data)
    write_gate(directory, run.gate)
    write_gate_alerts(directory, run)
    write_tables(directory, written, persons=persons)
    write_tracebacks(directory, evaluation.tracebacks)
    explained = sentences(audit_result.causes)
    figures = write_page(
        directory,
        run,
        written,
        everything,
        audit_result.metrics,
        causes=explained,
        formats=formats,
        persons=persons,
    )
    print_remarks(run, explained)
    for show in shows:
        show(results, figures)
    return run


def named_by_key(evaluation: Evaluation, key: bytes | None) -> Evaluation:
    """An evaluation as it is written without ``--persons``: clients have new numbers, and tables are over several."""
    return over_clients(in_order_of_persons(without_persons(evaluation, key or secret_key())))


def results_of(
    audit_result: AuditResult,
    results: pd.DataFrame,
    written: Evaluation,
    *,
    gate: Gate | None,
    experiment: str,
    command_line: str,
    read_back: Sequence[str],
    changed: Sequence[Mapping[str, Any]],
) -> Run:
    """What results.json says of an audit.

    Args:
        audit_result: the audit.
        results: its results with the values of papers, of the reported metrics.
        written: its evaluation as it is written; attacks' own tables are of it.
        gate: function that checks limits, None for no limits.
        experiment: name of the run.
        command_line: how it was started.
        read_back: keys of the cells that an earlier run had finished.
        changed: what changed from other runs.
    """
    evaluation = audit_result.evaluation
    # A gate judges the recorded updates only, not those that a defence would have changed.
    verdicts = []
    if gate is not None:
        verdicts = [dataclasses.asdict(verdict) for verdict in gate(as_recorded(results), evaluation)]
    outcomes = outcomes_under_defences(results, evaluation, gate)
    measured = leading(recorded_answers(results), evaluation.scores)
    lacking, _ = unanswered({**evaluation.not_run, **evaluation.unrelated}, measured)
    return Run(
        experiment=experiment,
        command=command_line,
        seed=audit_result.seed,
        commit=commit(),
        versions=versions(),
        data={"sha256": "", **audit_result.data},
        hardware=hardware(),
        seconds=audit_result.seconds,
        results=results,
        answers=[plain(answer) for answer in [*measured, *lacking]],
        not_run=evaluation.not_run,
        causes=[dataclasses.asdict(cause) for cause in audit_result.causes],
        differences=paired_differences(audit_result.reported),
        gate=verdicts,
        read_back=list(read_back),
        details={label: plain_records(table) for label, table in written.details.items()},
        learner_check=evaluation.learner_check,
        advice=advice(results, evaluation, outcomes),
        defences={name: dict(of_limits) for name, of_limits in outcomes.items()},
        changes=[dict(comparison) for comparison in changed],
        system=system_lines(audit_result),
        plan=dict(audit_result.plan),
        unrelated=dict(evaluation.unrelated),
        learner_wrong=evaluation.mismatch is not None,
        false_declarations=[*evaluation.false_declarations, *false_bounds(Cells(as_recorded(results)))],
        recording=recorded_places(audit_result, verdicts),
    )


def write_tables(directory: Path, written: Evaluation, *, persons: bool) -> None:
    """Writes scores, class shares and ROC curves as CSV files, and removes those of an earlier run."""
    # Means of true shares of several rounds, whose clients differ, would give each client's by linear algebra.
    compositions = written.profiles if persons else pd.DataFrame()
    tables = {SCORES: written.scores, COMPOSITIONS: compositions, ROC: roc_table(written)}
    for file, table in tables.items():
        (directory / file).unlink(missing_ok=True)
        if len(table):
            write_whole(directory / file, table.to_csv(index=False).encode())


def write_tracebacks(directory: Path, tracebacks: Mapping[str, str]) -> None:
    """Writes the tracebacks of attacks that ended in an exception, and removes those of an earlier run."""
    (directory / TRACEBACKS).unlink(missing_ok=True)
    if tracebacks:
        text = "\n".join(f"{attack}\n{traceback}" for attack, traceback in tracebacks.items())
        write_whole(directory / TRACEBACKS, text.encode())


def print_remarks(run: Run, explained: Sequence[str]) -> None:
    """Prints why attacks failed, which defences keep the limits, and whether the learner fits."""
    if explained:
        print("why attacks failed:")
        for sentence in explained:
            print(f"  {sentence}")
    if run.advice:
        print(f"{run.advice} {NOT_SEEN}")
    if run.learner_check:
        print(f"learner: {run.learner_check}.")


def combine(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Evaluation of all cells of a table, with ROC curves by setting."""
    # A cell has one setting, so its first row says which; labels name only what differs between cells.
    keys = differing(concat([evaluation.scores.head(1) for evaluation in evaluations])) | {"data"}
    labelled: list[Evaluation] = []
    for evaluation in evaluations:
        first_rows = records(evaluation.scores.head(1))
        setting = describe(setting_of(first_rows[0] if first_rows else {}), keys)
        labels = {attack: Label(attack, setting) for attack in (*evaluation.roc, *evaluation.details)}
        in_cell = dataclasses.replace(
            evaluation,
            roc={str(labels[attack]): curve for attack, curve in evaluation.roc.items()},
            details={str(labels[attack]): table for attack, table in evaluation.details.items()},
            labels={str(label): label for label in labels.values()},
        )
        labelled.append(in_cell)
    return joined(labelled)
