"""Audit: attacks on a recording, run, scored and explained; its results as a DataFrame."""

import contextlib
import dataclasses
import functools
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pandas as pd

from fedleak.core.attack import Attack
from fedleak.core.errors import InputError, require
from fedleak.core.metric_table import METRICS, metric_names
from fedleak.evaluation.as_recorded import as_recorded
from fedleak.evaluation.audit_plan import AuditPlan
from fedleak.evaluation.cause import Cause
from fedleak.evaluation.changes import Changes, changes
from fedleak.evaluation.derived import derived
from fedleak.evaluation.described_recording import with_description
from fedleak.evaluation.engines.engine import Engine
from fedleak.evaluation.estimate_jobs import estimate
from fedleak.evaluation.estimate_store import EstimateStore
from fedleak.evaluation.evaluate import evaluate_recording
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.execution import Execution
from fedleak.evaluation.failures import explain
from fedleak.evaluation.gate import About, LimitError, Outcome, Verdict, gate
from fedleak.evaluation.limits import check_limits, limits_of
from fedleak.evaluation.luck import with_luck
from fedleak.evaluation.posterior.posterior import POSTERIOR
from fedleak.evaluation.reasons import Reason
from fedleak.evaluation.registry import chosen_attacks
from fedleak.evaluation.scores import concat, differing, setting_columns, stacked
from fedleak.evaluation.steps import RecordingRun, RecordingStep
from fedleak.evaluation.steps.bounds import bounds_of
from fedleak.evaluation.stored_run import StoredRun, read_reference
from fedleak.evaluation.summary import summarise
from fedleak.evaluation.time_budget import TimeBudget
from fedleak.recordings.recording import Recording

_SHOWN = ("attack", "role", "metric", "mean", "low", "high", "n")


@dataclasses.dataclass(repr=False)
class AuditResult:
    """What attacks infer from a recording; `reports.show` displays it in a notebook, with figures.

    Attributes:
        evaluation: scores of each victim, and the reasons for which attacks could not run.
        metrics: metrics to report.
        data: name and hash of the data.
        seed: seed of the attacks' draws, the first one of a table.
        seconds: wall time.
        recording: recording that was attacked; None for the cells of a table.
        attacks: attacks that were asked for, also those that could not run.
        plan: what was done, see `fedleak.evaluation.audit_plan.AuditPlan.described`; empty for the cells of a table.

    Example:
        >>> from tempfile import mkdtemp
        >>> from fedleak import DeltaRecorder, audit, quiet_trainer
        >>> from fedleak.datamodules import SyntheticRecommender
        >>> from fedleak.modules import FNCF
        >>> folder = mkdtemp()
        >>> options = {"default_root_dir": folder, "enable_progress_bar": False}
        >>> trainer = quiet_trainer(max_steps=1, callbacks=[DeltaRecorder()], **options)
        >>> trainer.fit(FNCF(), SyntheticRecommender(users=12))
        >>> result = audit(f"{folder}/deltas", ["direction", "popularity"], progress=False)
        >>> result.results["n"].unique().tolist()  # clients that each mean is over
        [12]
    """

    evaluation: Evaluation
    metrics: Sequence[str]
    data: Mapping[str, str]
    seed: int = 0
    seconds: float = 0.0
    recording: Recording | None = None
    attacks: Sequence[Attack] = ()
    plan: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def reported(self) -> Evaluation:
        """The evaluation with the scores of the reported metrics only."""
        scores = self.evaluation.scores
        return dataclasses.replace(self.evaluation, scores=scores[scores["metric"].isin(self.metrics)])

    @functools.cached_property
    def everything(self) -> pd.DataFrame:
        """`results` with the derived ones that are not reported, which figures need."""
        results = stacked([summarise(self.reported), derived(self.evaluation)])
        return with_luck(results, self.evaluation.scores)

    @functools.cached_property
    def results(self) -> pd.DataFrame:
        """One row per attack, setting and metric: mean, 95% interval, n; see `fedleak.evaluation.summary.summarise`."""
        everything = self.everything
        return everything[everything["metric"].isin(self.metrics)].reset_index(drop=True)

    @functools.cached_property
    def causes(self) -> list[Cause]:
        """Likely causes of attacks that failed; none for the cells of a table."""
        if self.recording is None:
            return []
        return explain(self.results, self.recording, seed=self.seed)

    @property
    def scores(self) -> pd.DataFrame:
        """One row per attack, victim, round and metric."""
        return self.evaluation.scores

    @property
    def missing(self) -> dict[str, Reason]:
        """Reason by attack that could not run, of the questions that fit the recording."""
        return self.evaluation.missing

    @property
    def table(self) -> pd.DataFrame:
        """The columns of `results` that a person compares."""
        settings = [name for name in setting_columns(self.results) if name in differing(self.results)]
        return self.results[[*_SHOWN[:2], *settings, *_SHOWN[2:]]]

    def changes(self, reference: "AuditResult | StoredRun | str | Path", *, key: bytes | None = None) -> Changes:
        """What changed from a reference to this audit; ``changes(reference).table`` is a DataFrame.

        Args:
            reference: another audit, or the folder of a run.
            key: see `fedleak.evaluation.changes.changes`.

        Raises:
            InputError: the folder holds no run, or a damaged one.
        """
        run = StoredRun("this audit", self.evaluation, self.data, summary=self.results)
        return changes(_reference(reference), run, key=key)

    def check(
        self,
        limits: Mapping[str, float] | None = None,
        *,
        reference: "AuditResult | StoredRun | str | Path | None" = None,
        accept: Collection[Outcome] = (),
        about: About = "clients",
        **further: float,
    ) -> list[Verdict]:
        """Checks limits on what attacks may infer, as ``fedleak audit DIR --gate`` does, e.g. in a test.

        ``found.check(auc=0.6)`` or ``found.check({"composition/l1": 0.25, "beyond-baseline": 0.05})``.

        Args:
            limits: limits by name, see docs/audit/gate.md.
            reference: run to compare with, for a limit on ``change``.
            accept: outcomes other than ``ok`` that are accepted, e.g. ``("undecided",)``.
            about: whom limits are about: ``clients`` like the recorded ones, or ``recording`` for those of this one.
            further: limits whose name is a word.

        Returns:
            The verdict on each limit.

        Raises:
            LimitError: an `AssertionError`: a limit does not hold, with the sentence of each such limit.
            InputError: a name is unknown, or a limit is no value of its metric.
        """
        checked = limits_of({**(limits or {}), **further})
        require(checked, "a limit to check", "none", "E.g. check(auc=0.6).")
        check_limits(checked, self.attacks, reference=reference is not None)
        compared = None
        if reference is not None:
            reference_run = _reference(reference)

            def compared(evaluation: Evaluation) -> Changes:
                return dataclasses.replace(self, evaluation=evaluation).changes(reference_run)

        recorded = recorded_clients(self.recording, about)
        check_results = gate(checked, self.attacks, compared, recorded)
        verdicts = check_results(as_recorded(self.results), self.evaluation)
        broken = [verdict for verdict in verdicts if verdict.verdict not in ("ok", *accept)]
        if broken:
            raise LimitError(broken)
        return verdicts

    def __repr__(self) -> str:
        """The table as text."""
        return self.table.to_string(index=False, float_format="{:.3f}".format)

    def _repr_html_(self) -> str:
        """The table, as a notebook shows it."""
        return self.table.to_html(index=False, float_format="{:.3f}".format, border=0)


def _reference(reference: "AuditResult | StoredRun | str | Path") -> StoredRun:
    """The run to compare with, of another audit or of the folder of a run."""
    if isinstance(reference, AuditResult):
        return StoredRun("the reference", reference.evaluation, reference.data)
    if isinstance(reference, StoredRun):
        return reference
    return read_reference(Path(reference))


def recorded_clients(recording: Recording | None, about: About) -> int | None:
    """Number of clients of a recording that limits are about; None for limits about clients like these.

    Raises:
        InputError: limits are about the recording, and there is none.
    """
    if about == "clients":
        return None
    way_out = "Audit a recording, or leave limits about clients like these."
    if recording is None:
        raise InputError(expected="a recording that limits are about", found="a table of several", way_out=way_out)
    return len(recording.pseudonyms())


def audit(
    recording: str | Path | Recording,
    only: Sequence[Attack | str] | None = None,
    *,
    also: Sequence[Attack | str] = (),
    seed: int = 0,
    victims: int | None = None,
    rounds: Sequence[int] | None = None,
    engine: Engine | None = None,
    progress: bool = True,
) -> AuditResult:
    """Runs attacks on a recording and scores them, as ``fedleak audit`` does.

    Further options are those of a plan: ``run_audit(AuditPlan(recording=..., attacks=..., slow="few"))``.

    Args:
        recording: recording, or its folder.
        only: attacks to run alone, also by name or class path; None for all of this project. Those that do not fit the
            recording are listed in `AuditResult.missing` if their question fits.
        also: attacks to add to all of this project.
        seed: seed of the attacks' draws.
        victims: number of clients to attack, drawn at random; None for all.
        rounds: numbers of the rounds to attack, from 0; None for all.
        engine: who runs the attacks, e.g. ``Processes(jobs=4)``; None for this process with all its threads.
        progress: whether to show a progress bar.

    Raises:
        InputError: there is no recording, it is damaged, or no attack has a given name.

    Example:
        >>> from tempfile import mkdtemp
        >>> from fedleak import DeltaRecorder, audit, quiet_trainer
        >>> from fedleak.datamodules import SyntheticRecommender
        >>> from fedleak.modules import FNCF
        >>> folder = mkdtemp()
        >>> options = {"default_root_dir": folder, "enable_progress_bar": False}
        >>> trainer = quiet_trainer(max_steps=1, callbacks=[DeltaRecorder()], **options)
        >>> trainer.fit(FNCF(), SyntheticRecommender(users=12))
        >>> result = audit(f"{folder}/deltas", ["direction", "popularity"], progress=False)
        >>> means = result.results.query("metric == 'auc'").set_index("attack")["mean"]
        >>> round(float(means["direction"]), 3)  # every item that a client interacted with comes first
        1.0
    """
    plan = AuditPlan(
        recording=recording if isinstance(recording, Recording) else Recording(recording),
        attacks=chosen_attacks(only, also),
        seed=seed,
        victims=victims,
        rounds=rounds,
    )
    return run_audit(plan, engine=engine, progress=progress)


def run_audit(
    plan: AuditPlan, *, engine: Engine | None = None, store: EstimateStore | None = None, progress: bool = True
) -> AuditResult:
    """Runs a plan: its attacks, their scores, its steps, and what describes the recording.

    Args:
        plan: what to run.
        engine: who computes the estimates of the attacks; None for this process with all its threads. Engines with one
            thread for each worker have the scores of this process with one thread, bit for bit.
        store: files of the estimates of an earlier run that did not end; None to keep none.
        progress: whether to show a progress bar.

    Raises:
        InputError: the recording is damaged.

    Example:
        >>> from tempfile import mkdtemp
        >>> from fedleak import AuditPlan, Recording, run_audit
        >>> from fedleak.attacks import Linkability
        >>> from fedleak_recorder import Recorder
        >>> folder = mkdtemp()
        >>> with Recorder(folder, holds="deltas") as recorder:
        ...     for number in range(2):
        ...         sent = {"a": ({"weight": [3.0, 4.0]}, 10), "b": ({"weight": [-1.0, 1.0]}, 30)}
        ...         recorder.round(number, {"weight": [0.0, 0.0]}, sent)
        >>> plan = AuditPlan(recording=Recording(folder), attacks=[Linkability()], rounds=[0])
        >>> result = run_audit(plan, progress=False)
        >>> result.plan["rounds"]
        'number 0, of 2 recorded'
    """
    start = time.perf_counter()
    budget = TimeBudget(plan.minutes)
    with contextlib.ExitStack() as stack:
        # An engine writes the estimates to files, from which they are scored here.
        if engine is not None:
            if store is None:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                store = EstimateStore(folder, plan)
            estimate(plan, store, engine, budget=budget, progress=progress)
        evaluation = evaluate_recording(plan, Execution(store=store, budget=budget, progress=progress))
    steps = list(plan.steps)
    if plan.describe:
        steps += bounds_of(plan.recording)
    evaluation = with_description(plan, evaluation, progress=progress)
    # Steps add rows to the scores of the attacks.
    run = RecordingRun(plan.recording, plan.cell, plan.seed)
    tables = [evaluation.scores]
    for step in steps:
        tables += step.rows(run)
    evaluation.scores = concat(tables)
    return AuditResult(
        evaluation=evaluation,
        metrics=_metrics(plan, steps),
        data=dict(plan.recording.manifest.data),
        seed=plan.seed,
        seconds=time.perf_counter() - start,
        recording=plan.recording,
        attacks=plan.attacks,
        plan=plan.described(),
    )


def _metrics(plan: AuditPlan, steps: Sequence[RecordingStep]) -> list[str]:
    """Names of the metrics that the attacks and the steps of a plan measure, in the order of all metrics."""
    measured = set(POSTERIOR)
    for attack in plan.attacks:
        measured |= set(attack.estimates.metric_names())
    for step in steps:
        measured |= set(metric_names(step.metrics))
    return [name for name in METRICS if name in measured]
