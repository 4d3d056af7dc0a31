"""``fedleak audit``: all attacks on a recording."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedleak.commands.shared import shared_options
from fedleak.commands.shared.audit_options import GROUPS, AuditOptions
from fedleak.commands.shared.command import Command
from fedleak.reports.results_folder import print_outputs, results_folder, results_in, shell_command

if TYPE_CHECKING:
    from fedleak.commands.shared.defences_file import Defences
    from fedleak.core.attack import Attack
    from fedleak.evaluation.audit_plan import AuditPlan
    from fedleak.evaluation.auditing import AuditResult
    from fedleak.evaluation.changes import Changes
    from fedleak.evaluation.engines import Engine
    from fedleak.evaluation.estimate_store import EstimateStore
    from fedleak.evaluation.evaluation import Evaluation
    from fedleak.evaluation.limits import Limit
    from fedleak.evaluation.reasons import Reason
    from fedleak.evaluation.run import Run
    from fedleak.evaluation.stored_run import StoredRun
    from fedleak.recordings.recording import Recording
    from fedleak.reports.statement.system_file import Declaration

_PAIRS = "what changed from another run; with one FEDLEAK_KEY in both audits, the same clients are paired"
_WITHOUT_TRUTH = (
    "attacks whose answers are compared with the true ones are not scored. What still works: the description of the"
    " updates, attacks that are certain of their answers by themselves, and the check of declared noise. Audit the"
    " recording where truth/ is, or copy truth/ back into it."
)


@dataclass(frozen=True)
class _Inputs:
    """What an audit reads before its first attack runs: whatever can be refused is refused by then."""

    plan: "AuditPlan"
    limits: Sequence["Limit"] | None
    reference: "StoredRun | None"
    declared: "Declaration | None"
    defences: "Defences | None"


def audit(options: AuditOptions) -> int:
    """Runs all attacks for which the recording has the needed data, and describes the updates in any case."""
    from fedleak.commands.shared.results_place import check_results_place, only_command
    from fedleak.core.seeding import secret_key
    from fedleak.evaluation.estimate_store import UNFINISHED, kept_until_end
    from fedleak.evaluation.gate import gate_status
    from fedleak.reports.exporters.sarif import write_gate_alerts
    from fedleak.reports.junit import write_gate

    check_results_place(
        options.results,
        recordings=[options.recording],
        inputs=[options.statement, options.what_if],
        holds_files=options.out is not None,
    )
    with results_folder(options.results) as directory, only_command(directory, shared=options.part is not None):
        # An earlier verdict must not outlive an audit that fails.
        write_gate(directory, [])
        write_gate_alerts(directory, None)

        inputs = _read_inputs(options)
        unfinished = directory / UNFINISHED
        if options.part is not None:
            return _write_estimates(options, inputs, unfinished)
        keeps: AbstractContextManager[EstimateStore | None] = nullcontext()
        if inputs.defences is None:
            keeps = kept_until_end(unfinished, inputs.plan)
        key = secret_key()
        with keeps as store:
            result = _run_attacks(options, inputs, store)
            run = _write_results(options, inputs, result, directory, key)
        if inputs.declared is not None:
            _write_statement(options, inputs, result, run, directory, key)
        _print_end(options, inputs, result, run, directory)
        return gate_status([verdict["verdict"] for verdict in run.gate])


def _read_inputs(options: AuditOptions) -> _Inputs:
    """Reads what the options name, and checks what does not fit together."""
    from fedleak.commands.shared.defences_file import read_defences
    from fedleak.commands.shared.open_recording import open_recording
    from fedleak.evaluation.audit_plan import AuditPlan
    from fedleak.evaluation.changes import check_comparable
    from fedleak.evaluation.limits import check_limits, read_gate
    from fedleak.evaluation.registry import REGISTRY, chosen_attacks
    from fedleak.evaluation.stored_run import read_reference
    from fedleak.reports.statement.system_file import Declaration

    # Small files first: a mistake in them shows before the recording is opened.
    defences = None if options.what_if is None else read_defences(Path(options.what_if))
    limits = read_gate(options.limits) if options.limits else None
    reference = None if options.reference is None else read_reference(Path(options.reference))
    recording = open_recording(options.recording, options.learner, options.learner_arguments, options.control)
    attacks = chosen_attacks(options.only, options.also, published=options.published)
    if reference is not None:
        check_comparable(reference, recording.manifest.data["name"], attacks)
    declared = None
    if options.statement is not None:
        # A system is declared as a whole, whichever attacks run this time.
        questions = {kind.family for kind in REGISTRY.values()} | {attack.family for attack in attacks}
        declared = Declaration.read(Path(options.statement), questions)
        limits = declared.with_limits(limits)
    check_limits(limits or (), attacks, reference=reference is not None)
    plan = AuditPlan(
        recording=recording,
        attacks=attacks,
        seed=options.seed,
        victims=options.victims,
        slow="few" if options.slow else "none",
        minutes=options.time,
    )
    return _Inputs(plan, limits, reference, declared, defences)


def _run_attacks(options: AuditOptions, inputs: _Inputs, store: "EstimateStore | None") -> "AuditResult":
    """Runs the attacks on the recording, or on it and as if clients had used each of the defences."""
    from fedleak.evaluation.auditing import run_audit
    from fedleak.evaluation.what_if import what_if

    if inputs.defences is not None:
        return what_if(inputs.plan, inputs.defences, engine=_engine(options, jobs=options.jobs))
    # By itself, this process runs the attacks with all its threads.
    engine = _engine(options, jobs=options.jobs or 1)
    return run_audit(inputs.plan, engine=None if engine.in_this_process else engine, store=store)


def _engine(options: AuditOptions, *, jobs: int | None) -> "Engine":
    """Who runs the attacks; so many at the same time, or as many as the engine takes by itself."""
    from fedleak.evaluation.engines import EngineOptions, engine_of

    is_default = options.engine == shared_options.DEFAULT_ENGINE
    engine_options = EngineOptions(
        folder=options.results / "engine",
        jobs=jobs if is_default else options.jobs,
        arguments=options.engine_arguments,
    )
    return engine_of(options.engine, engine_options)


def _write_estimates(options: AuditOptions, inputs: _Inputs, folder: Path) -> int:
    """Writes the estimates of one part of an audit into the folder that all parts share."""
    from fedleak.evaluation.estimate_jobs import estimate
    from fedleak.evaluation.estimate_store import EstimateStore
    from fedleak.evaluation.part import place_of

    assert options.part is not None
    machine = place_of(options.part)
    store = EstimateStore(folder, inputs.plan, part=True)
    estimate(inputs.plan, store, _engine(options, jobs=options.jobs), machine=machine)
    print(f"part {options.part}: {store.made} new estimates")
    print_outputs({"estimates": [folder]}, then="the same command without --part, after all parts")
    return 0


def _write_results(options: AuditOptions, inputs: _Inputs, result: "AuditResult", directory: Path, key: bytes) -> "Run":
    """Writes the results and the page, with the verdicts on the limits."""
    from fedleak.evaluation.auditing import recorded_clients
    from fedleak.evaluation.changes import changes
    from fedleak.evaluation.gate import gate
    from fedleak.evaluation.stored_run import StoredRun
    from fedleak.reports.wandb_log import shows_in_wandb
    from fedleak.reports.write_run import write_run

    def changed(evaluation: "Evaluation") -> "Changes":
        assert inputs.reference is not None  # checked with the limits
        run = StoredRun(directory.resolve().name, evaluation, result.data)
        return changes(inputs.reference, run, key=key)

    check = None
    if inputs.limits is not None:
        clients = recorded_clients(inputs.plan.recording, options.about)
        check = gate(inputs.limits, inputs.plan.attacks, changed, clients)
    return write_run(
        result,
        directory=directory,
        gate=check,
        shows=shows_in_wandb(options.wandb, directory),
        formats=options.formats,
        persons=options.persons,
        key=key,
        reference=inputs.reference,
    )


def _write_statement(
    options: AuditOptions, inputs: _Inputs, result: "AuditResult", run: "Run", directory: Path, key: bytes
) -> None:
    """Writes the statement on the system that is declared."""
    from fedleak.evaluation.persons import without_persons
    from fedleak.reports.statement.statement import write_statement

    assert inputs.declared is not None
    evaluation = result.evaluation
    if not options.persons:
        evaluation = without_persons(evaluation, key)
    write_statement(
        directory,
        run,
        evaluation,
        attacks=inputs.plan.attacks,
        recording=inputs.plan.recording,
        declared=inputs.declared,
        persons=options.persons,
    )


def _print_end(options: AuditOptions, inputs: _Inputs, result: "AuditResult", run: "Run", directory: Path) -> None:
    """Prints what did not run and why, the verdicts, the time, the files, and what to run next."""
    from fedleak.evaluation.reasons import reasons
    from fedleak.evaluation.time_budget import time_shares
    from fedleak.reports.gate_words import verdict_in_words

    evaluation = result.evaluation
    print("\n".join(reasons(evaluation.not_run)))
    if not inputs.plan.recording.has_truth:
        print(f"{options.recording} has no truth/: {_WITHOUT_TRUTH}")
    # Who names attacks knows what is left out.
    if options.only is None:
        print(_left_out(inputs.plan.recording, inputs.plan.attacks), end="")
    for verdict in run.gate:
        # Limits on differences have the message alone.
        sentence = verdict_in_words(verdict, run.results)
        print("\n".join(filter(None, [sentence, verdict["message"]])))
    print(time_shares(result.scores, evaluation.lines, result.seconds))
    then = _next(options.recording, directory, evaluation.not_run, inputs.limits, options.reference)
    print_outputs(results_in(directory), then=then)


def _left_out(recording: "Recording", attacks: Sequence["Attack"]) -> str:
    """Line on the attacks that fit the recording and that only ``--published`` runs; empty if there are none."""
    from fedleak.evaluation.fitting import misfits
    from fedleak.evaluation.registry import published_beside

    beside = published_beside(attacks)
    if not beside:
        return ""
    count = len(beside) - len(misfits(recording, beside))
    if count == 0:
        return ""
    if count == 1:
        return (
            "1 published attack was left out that is nowhere ahead of all others in docs/results: --published runs it\n"
        )
    return (
        f"{count} published attacks were left out that are nowhere ahead of all others in docs/results: --published"
        " runs them\n"
    )


def _next(
    recording: str,
    directory: Path,
    not_run: Mapping[str, "Reason"],
    limits: Sequence["Limit"] | None,
    reference: str | None,
) -> str:
    """What to run after an audit: the slow attacks, a gate, or a page with other runs."""
    # An audit of more attacks keeps the options of the judgement.
    judging_options: list[str] = []
    for limit in limits or ():
        judging_options += ["--gate", f"{limit.name}={limit.bound:g}"]
    if reference is not None:
        judging_options += ["--reference", reference]
    if any(reason.kind in ("slow", "under-defences") for reason in not_run.values()):
        return shell_command("audit", recording, *judging_options, "--slow", why="also attacks that take minutes")
    if limits is None:
        why = "fails a CI job, see docs/audit/gate.md"
        return shell_command("audit", recording, "--gate", "METRIC=LIMIT", why=why)
    return shell_command("report", directory, "RUN", why=_PAIRS)


COMMAND = Command(
    heading="start here",
    place=11,
    summary="runs all attacks for which a recording has the data, and says what they infer",
    groups=GROUPS,
    options=AuditOptions,
    run=audit,
    description="It describes the updates in any case.",
)
