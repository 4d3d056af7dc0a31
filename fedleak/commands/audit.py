"""``fedleak audit``: all attacks on a recording."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from fedleak.commands.defences_file import read_defences
from fedleak.commands.open_recording import open_recording
from fedleak.commands.results_place import check_results_place, only_command
from fedleak.core.errors import require
from fedleak.core.seeding import secret_key
from fedleak.evaluation.audit_plan import AuditPlan
from fedleak.evaluation.auditing import recorded_clients, run_audit
from fedleak.evaluation.changes import Changes, changes
from fedleak.evaluation.engines.processes import Processes
from fedleak.evaluation.estimate_jobs import estimate
from fedleak.evaluation.estimate_store import UNFINISHED, EstimateStore, kept_until_end
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.gate import About, gate_status
from fedleak.evaluation.gate import gate as check_gate
from fedleak.evaluation.limits import Limit, check_limits, read_gate
from fedleak.evaluation.persons import without_persons
from fedleak.evaluation.processes import default_jobs, place_of
from fedleak.evaluation.reasons import Reason, reasons
from fedleak.evaluation.registry import REGISTRY, chosen_attacks
from fedleak.evaluation.stored_run import StoredRun, read_reference
from fedleak.evaluation.time_budget import time_shares
from fedleak.evaluation.what_if import what_if as with_defences
from fedleak.recordings.control import Control
from fedleak.reports.exporters.sarif import write_gate_alerts
from fedleak.reports.files import Format
from fedleak.reports.gate_words import verdict_in_words
from fedleak.reports.junit import write_gate
from fedleak.reports.results_folder import folder_above, print_outputs, results_folder, results_in, shell_command
from fedleak.reports.statement.statement import write_statement
from fedleak.reports.statement.system_file import Declaration
from fedleak.reports.wandb_log import shows_in_wandb
from fedleak.reports.write_run import write_run

_PAIRS = "what changed from another run; with one FEDLEAK_KEY in both audits, the same clients are paired"
_MINUTES = 30.0
"""Time of an audit for which none is set."""


def audit(
    recording: str,
    out: str | None = None,
    seed: int = 0,
    victims: int | None = None,
    gate: list[str] | None = None,
    wandb: str | None = None,
    only: list[str] | None = None,
    also: list[str] | None = None,
    slow: bool = False,
    learner: str | None = None,
    learner_arguments: dict[str, Any] | None = None,
    format: list[Format] | None = None,
    statement: str | None = None,
    persons: bool = False,
    control: Control | None = None,
    what_if: str | None = None,
    minutes: float | None = None,
    jobs: int | None = None,
    part: str | None = None,
    reference: str | None = None,
    about: About = "clients",
) -> int:
    """Runs all attacks for which the recording has the needed data, and describes the updates in any case."""
    judged = any(option is not None for option in (gate, statement, reference))
    way_out = "Omit one of them: a control says nothing about the system."
    expected = "--control without --gate, --statement and --reference"
    require(control is None or not judged, expected, f"--control {control}", way_out)
    way_out = "Omit one of them."
    require(what_if is None or control is None, "--what-if without --control", f"--what-if {what_if}", way_out)
    alone = part is None or not any((judged, what_if, format, wandb))
    way_out = "A part only computes estimates: give these to the command without --part, after all parts."
    require(alone, "--part with options of the attacks only", "one of the results", way_out)
    unbounded = slow or what_if is not None or part is not None
    way_out = "Omit one of them."
    require(minutes is None or not (what_if or part), "--minutes without --what-if and --part", str(minutes), way_out)
    minutes = _MINUTES if minutes is None and not unbounded else minutes
    defences = None if what_if is None else read_defences(Path(what_if))
    default = folder_above(recording) / ("what-if" if what_if else "" if control is None else f"control-{control}")
    check_results_place(
        out or default, recordings=[recording], inputs=[statement, what_if], holds_files=out is not None
    )
    with results_folder(out or default) as directory, only_command(directory, shared=part is not None):
        write_gate(directory, [])  # an earlier verdict must not outlive an audit that fails
        write_gate_alerts(directory, None)
        limits = None if gate is None else read_gate(gate)
        compared = None if reference is None else read_reference(Path(reference))
        opened = open_recording(recording, learner, learner_arguments, control)
        chosen = chosen_attacks(only, also or ())
        # A system is declared as a whole, whichever attacks run this time.
        questions = {kind.family for kind in REGISTRY.values()} | {attack.family for attack in chosen}
        declared = None if statement is None else Declaration.read(Path(statement), questions)
        limits = limits if declared is None else declared.with_limits(limits)
        check_limits(limits or (), chosen, reference=compared is not None)
        plan = AuditPlan(
            recording=opened,
            attacks=chosen,
            seed=seed,
            victims=victims,
            slow="few" if slow else "none",
            minutes=minutes,
        )
        if part is not None:
            return _estimated(directory / UNFINISHED, plan, part, jobs)
        keeps = nullcontext() if what_if else kept_until_end(directory / UNFINISHED, plan)
        with keeps as store:
            if defences is None:
                engine = Processes(jobs=jobs) if jobs is not None and jobs > 1 else None
                audited = run_audit(plan, engine=engine, store=store)
            else:
                audited = with_defences(plan, defences, engine=Processes(jobs=jobs or default_jobs()))
            key = secret_key()

            def changed(evaluation: Evaluation) -> Changes:
                assert compared is not None  # checked with the limits
                return changes(compared, StoredRun(directory.resolve().name, evaluation, audited.data), key=key)

            done = write_run(
                audited,
                directory=directory,
                gate=None if limits is None else check_gate(limits, chosen, changed, recorded_clients(opened, about)),
                shows=shows_in_wandb(wandb, directory),
                formats=format or (),
                persons=persons,
                key=key,
                reference=compared,
            )
        evaluation, verdicts = audited.evaluation if persons else without_persons(audited.evaluation, key), done.gate
        if declared is not None:
            write_statement(
                directory, done, evaluation, attacks=chosen, recording=opened, declared=declared, persons=persons
            )
        print("\n".join(reasons(evaluation.not_run)))
        for verdict in verdicts:
            print("\n".join(filter(None, [verdict_in_words(verdict, done.results), verdict["message"]])))
        print(time_shares(audited.scores, audited.evaluation.lines, audited.seconds))
        print_outputs(results_in(directory), then=_next(recording, directory, evaluation.not_run, limits, reference))
        return gate_status([verdict["verdict"] for verdict in verdicts])


def _estimated(folder: Path, plan: AuditPlan, part: str, jobs: int | None) -> int:
    """Writes the estimates of one part of an audit into the folder that all parts share."""
    store = EstimateStore(folder, plan, part=True)
    estimate(plan, store, Processes(jobs=jobs or default_jobs()), machine=place_of(part))
    print(f"part {part}: {store.made} new estimates")
    print_outputs({"estimates": [folder]}, then="the same command without --part, after all parts")
    return 0


def _next(
    recording: str,
    directory: Path,
    not_run: Mapping[str, Reason],
    limits: Sequence[Limit] | None,
    reference: str | None,
) -> str:
    """What to run after an audit: the slow attacks, a gate, or a page with other runs."""
    given = [word for limit in limits or () for word in ("--gate", f"{limit.name}={limit.bound:g}")]
    given += [] if reference is None else ["--reference", reference]
    if any(reason.kind in ("slow", "under-defences") for reason in not_run.values()):
        return shell_command("audit", recording, *given, "--slow", why="also attacks that take minutes")
    if limits is None:
        words = "audit", recording, "--gate", "METRIC=LIMIT"
        return shell_command(*words, why="fails a CI job, see docs/audit/gate.md")
    return shell_command("report", directory, "RUN", why=_PAIRS)
