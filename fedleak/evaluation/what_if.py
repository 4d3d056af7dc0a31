"""What a defence would do: attacks on a recording whose updates went through it, next to the signal that it leaves."""

import dataclasses
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from tqdm import tqdm

from fedleak.client.algorithm import ClientAlgorithm, RecordAlgorithm
from fedleak.client.auxiliary_images import IMAGES, LABELS
from fedleak.client.record_losses import record_losses
from fedleak.client.trees import TreesAlgorithm
from fedleak.core.metric import CORRELATION, POSITIVE, Metric
from fedleak.core.metric_table import METRICS
from fedleak.defenses.base import Defense
from fedleak.evaluation.answers import Answer, answers, goes_furthest
from fedleak.evaluation.as_recorded import COSINE as COSINE
from fedleak.evaluation.as_recorded import DEFENCE as DEFENCE
from fedleak.evaluation.as_recorded import NONE as NONE
from fedleak.evaluation.audit_plan import AuditPlan, of_all_messages
from fedleak.evaluation.auditing import AuditResult, run_audit
from fedleak.evaluation.engines.engine import Engine
from fedleak.evaluation.engines.processes import Processes
from fedleak.evaluation.evaluation import Evaluation, joined
from fedleak.evaluation.reasons import Reason
from fedleak.evaluation.relevance import full_name
from fedleak.evaluation.result_names import LOSS as LOSS
from fedleak.evaluation.scores import SETTING, concat
from fedleak.evaluation.steps.step import RecordingRun, RecordingStep
from fedleak.evaluation.tree_signal import kept_predictions
from fedleak.recordings import adversary_devices
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.what_if import DefendedRecording

ERROR = "aggregate-error"
"""Metric: relative change of the mean update by the defence."""
AGGREGATE = "aggregate"
"""Label of the round's mean update."""
_ROUND = SETTING + "round"
_FEW = 2
"""Attacks of a question that are repeated under every defence."""
_SECONDS = 120
"""Time that all attacks together may take under the defences, without `slow`."""
_EXAMPLES = 1000
"""Labelled examples of the server on which a loss is measured."""
_Name = tuple[str, str]
"""Family and name of an attack."""
_LABELLED = ((IMAGES, LABELS), (adversary_devices.FEATURES, adversary_devices.LABELS))
"""Their names among the auxiliary data, with those of their labels."""


@dataclass(frozen=True, kw_only=True)
class SignalKept(RecordingStep):
    """How much of each round's mean update defences leave: what the global model would have learned in the round.

    One value per round of a training with the defences, measured where this stands among the recorded rounds, see
    `fedleak.recordings.what_if.DefendedRecording.stands_at`. The loss needs a learner whose loss is a mean over
    independent records, a recording of all that it trains, and labelled examples of the server, of which the first
    thousand count. The server is taken to add the mean update to the model.
    """

    name = "signal-kept"
    metrics = (
        Metric(
            COSINE,
            "Aggregate cosine is that of the round's mean update with and without the defence; 1 is no change. Of trees"
            " it is that of their sums on the server's rows.",
            leak=False,
            span=CORRELATION,
        ),
        Metric(
            ERROR,
            "Aggregate error is the norm of their difference over that of the mean update without the defence.",
            leak=False,
            lower_is_better=True,
            span=POSITIVE,
        ),
        Metric(
            LOSS,
            "Auxiliary loss is the mean loss, on labelled examples of the server, of the global model plus the round's"
            " mean update with the defence; of the forest with all defended trees so far.",
            leak=False,
            lower_is_better=True,
            span=POSITIVE,
        ),
    )

    def rows(self, run: RecordingRun) -> Iterator[pd.DataFrame]:
        recording = run.recording
        assert isinstance(recording, DefendedRecording)
        learner = recorded_learner(recording)
        if isinstance(learner, TreesAlgorithm):
            for number, before, after, loss in kept_predictions(recording, learner):
                metrics = {**_compared(before.double(), after.double()), LOSS: [loss]}
                yield run.scores(AGGREGATE, metrics, victims=[number], round=number)
            return
        # Several rounds of a training with defences may stand at one recorded round.
        signals = {}
        for recorded_round in set(recording.stands_at.values()):
            signals[recorded_round] = _signal(recording, recorded_round, learner)
        for number, recorded_round in recording.stands_at.items():
            yield run.scores(AGGREGATE, signals[recorded_round], victims=[number], round=number)


def _signal(recording: DefendedRecording, number: int, learner: ClientAlgorithm | None) -> dict[str, list[float]]:
    """Metrics of a recorded round's mean update, see `SignalKept`."""
    recorded, defended = recording.aggregates(number)
    metrics = _compared(_flat(recorded), _flat(defended))
    auxiliary = recording.auxiliary()
    names = next((pair for pair in _LABELLED if {*pair} <= {*auxiliary}), None)
    if names is None or not isinstance(learner, RecordAlgorithm) or not learner.independent:
        return metrics
    # The loss on the server's examples of the global model plus the mean update, if the recording has all of it.
    view = next(recording.views(rounds=[number], learner=learner))
    model = learner.trained(view.model)
    if model.keys() <= defended.keys():
        records_name, labels_name = names
        records = auxiliary[records_name][:_EXAMPLES]
        labels = auxiliary[labels_name][:_EXAMPLES]
        moved = {name: (value + defended[name])[None] for name, value in model.items()}
        sizes = learner.record_sizes(records)
        losses = record_losses(learner, moved, records, labels)[0]
        metrics[LOSS] = [float(losses @ sizes / sizes.sum())]
    return metrics


def _compared(before: Tensor, after: Tensor) -> dict[str, list[float]]:
    """Cosine and relative difference of two vectors, see `SignalKept`."""
    length = float(before.norm())
    return {
        COSINE: [float(before @ after) / max(length * float(after.norm()), 1e-300)],
        ERROR: [float((after - before).norm()) / max(length, 1e-300)],
    }


def what_if(
    plan: AuditPlan,
    defences: Mapping[tuple[str, Any], Sequence[Defense]],
    *,
    engine: Engine | None = None,
    progress: bool = True,
) -> AuditResult:
    """Audits a recording as it is, and as if clients had used each of some defences.

    All attacks run on the recording as it is; under every defence, those run again that were best at a question, and
    their baselines. Unless the plan runs slow attacks, the slowest of them are left out, with the reason, where all
    together would take more than two minutes under the defences, if their question has another. Results have the
    setting ``defence``, e.g. ``top-k 0.1``, and metrics of the mean update, see `SignalKept`. Attacks know what a
    defence publicly does, and adapt if they can. Rounds are those of a training with the defence, see `audited_under`.

    Args:
        plan: the audit of the recording as it is; its seed is also that of the defences' draws.
        defences: those of a client, in order, by a name and a strength.
        engine: who runs the attacks, and then tries the defences; None for this process.
        progress: whether to show a progress bar.

    Raises:
        InputError: a defence is no function of the update; see `DefendedRecording`.
    """
    start = time.perf_counter()
    recording = plan.recording
    defended = {key: DefendedRecording.of(recording, chosen, seed=plan.seed) for key, chosen in defences.items()}
    cell = {**plan.cell, DEFENCE: NONE}
    steps = [*plan.steps, SignalKept()]
    as_it_is = dataclasses.replace(plan, recording=DefendedRecording.of(recording, []), setting=cell, steps=steps)
    plain_result = run_audit(as_it_is, engine=engine, progress=progress)
    # Attacks that were best at a question run again, the fastest of them first where time is short.
    spent = _seconds(plain_result)
    best = _best(plain_result, spent)
    seconds_each = math.inf
    if plan.slow == "none":
        # The time is shared by the defences, of which an engine tries several at once.
        jobs = 1 if engine is None else engine.jobs
        at_once = min(jobs, len(defended) or 1)
        seconds_each = _SECONDS * at_once / max(len(defended), 1)
    most = _shared_out(seconds_each, [spent.get(name, 0.0) for name in best])
    chosen = _best(plain_result, spent, most=most)
    repeated = [attack for attack in plan.attacks if attack.baseline or (attack.family, attack.name) in chosen]
    plans = []
    for (name, strength), under_defence in defended.items():
        label = name if strength is None else f"{name} {strength}"
        plans.append(
            dataclasses.replace(
                plan.with_attacks(repeated),
                recording=under_defence,
                setting={**cell, DEFENCE: label},
                steps=steps,
                describe=False,
                check_learner=False,
            )
        )
    results = (engine or Processes(jobs=1)).run(_audited, plans)
    parts = [plain_result, *tqdm(results, total=len(plans), desc="defences", disable=not progress)]
    evaluation = joined([part.evaluation for part in parts])
    # Tables of the updates and reasons are those of the recording as it is.
    evaluation.details = dict(plain_result.evaluation.details)
    evaluation.missing = dict(plain_result.missing)
    for attack in plan.attacks:
        attack_name = attack.family, attack.name
        if attack_name in best - chosen:
            evaluation.not_under_defences[full_name(attack, plan.attacks)] = Reason(
                "under-defences",
                way_out="give --slow",
                says=f"it takes {spent[attack_name]:.0f} s under each",
            )
    measured: set[str] = set()
    for part in parts:
        measured.update(part.metrics)
    return dataclasses.replace(
        plain_result,
        evaluation=evaluation,
        metrics=[name for name in METRICS if name in measured],
        seconds=time.perf_counter() - start,
        plan={**plain_result.plan, "what-if": f"{len(defended)} defences, the best attacks of each question again"},
    )


def _audited(plan: AuditPlan) -> AuditResult:
    """Result of a plan on a recording with defences, without the recording: another process may have made it."""
    return dataclasses.replace(audited_under(plan), recording=None)


def audited_under(plan: AuditPlan) -> AuditResult:
    """Audit of a recording under its defences, in rounds of a training with them.

    A training that the defences delay stands in each round where the recorded one stood earlier, see
    `fedleak.recordings.what_if.DefendedRecording.stands_at`. Attacks on one round run on that earlier round, its scores
    count for each round that stands there, and its clients are the victims. Attacks on all messages get the recording's
    rounds as they are.

    Args:
        plan: plan of the audit, on a `DefendedRecording`.
    """
    assert isinstance(plan.recording, DefendedRecording)
    # Recorded round by round of the training with the defences.
    attacked_rounds = set(plan.attacked_rounds)
    recorded_rounds = {}
    for number, recorded_round in plan.recording.stands_at.items():
        if number in attacked_rounds:
            recorded_rounds[number] = recorded_round
    if all(number == recorded_round for number, recorded_round in recorded_rounds.items()):
        return run_audit(plan, progress=False)
    single = [attack for attack in plan.attacks if not of_all_messages(attack)]
    on_messages = [attack for attack in plan.attacks if of_all_messages(attack)]
    earlier_rounds = sorted({*recorded_rounds.values()})
    result = run_audit(dataclasses.replace(plan.with_attacks(single), rounds=earlier_rounds), progress=False)
    result.evaluation.scores = _in_rounds_of_training(result.evaluation, recorded_rounds)
    if not on_messages:
        return result
    of_messages = run_audit(dataclasses.replace(plan.with_attacks(on_messages), steps=()), progress=False)
    measured = {*result.metrics, *of_messages.metrics}
    return dataclasses.replace(
        result,
        evaluation=joined([result.evaluation, of_messages.evaluation]),
        metrics=[name for name in METRICS if name in measured],
        attacks=plan.attacks,
    )


def _in_rounds_of_training(evaluation: Evaluation, recorded_rounds: Mapping[int, int]) -> pd.DataFrame:
    """Scores of attacks on recorded rounds, once for each round of a training that stands there."""
    scores = evaluation.scores
    of_attacks = scores["attack"].isin(list(evaluation.lines))
    # Steps count rounds of the training themselves.
    tables = [scores[~of_attacks]]
    for number, recorded_round in recorded_rounds.items():
        table = scores[of_attacks & (scores["round"] == recorded_round)].assign(round=number)
        # Rows of their own for each round are numbered from 1.
        if _ROUND in table:
            table[_ROUND] = number + 1
        tables.append(table)
    return concat(tables)


def _seconds(result: AuditResult) -> dict[_Name, float]:
    """Seconds that attacks took."""
    # A victim has rows for several metrics, with the same seconds in each.
    by_victim = result.scores.drop_duplicates(["attack", "seed", "round", "victim"])
    by_label = by_victim.groupby("attack")["seconds"].sum()
    seconds: dict[_Name, float] = {}
    for label, info in result.evaluation.lines.items():
        if info.name and not info.with_prior and label in by_label:
            name = str(info.family), info.name
            seconds[name] = seconds.get(name, 0.0) + float(by_label[label])
    return seconds


def _shared_out(seconds: float, costs: Sequence[float]) -> float:
    """Most seconds of one of several costs, so that those within it are together within `seconds`.

    >>> _shared_out(10, [1, 2, 30, 40]), _shared_out(10, [1, 2])
    (3.5, inf)
    """
    # The cheapest first: while each fits into an equal share of what remains, the rest share what it leaves.
    ascending = sorted(costs)
    for position, cost in enumerate(ascending):
        equal_share = seconds / (len(ascending) - position)
        if cost > equal_share:
            return equal_share
        seconds -= cost
    return math.inf


def _best(result: AuditResult, spent: Mapping[_Name, float], most: float = math.inf) -> set[_Name]:
    """The attacks within so many seconds that were best at a question, or its fastest where none is."""
    by_question: dict[tuple[str | None, str], list[Answer]] = {}
    for answer in answers(result.results):
        by_question.setdefault((answer.question, answer.metric), []).append(answer)
    chosen = set[_Name]()
    for of_question in by_question.values():
        # Of several settings, the one in which the attacks go furthest.
        ranked = max(of_question, key=goes_furthest).ranked
        names = []
        for row in ranked:
            name = str(row["family"]), str(row["name"])
            if row["name"] and not row["with_prior"] and name not in names:
                names.append(name)
        affordable = [name for name in names if spent.get(name, 0.0) <= most]
        if affordable:
            chosen |= {*affordable[:_FEW]}
        elif names:
            chosen.add(min(names, key=lambda name: spent.get(name, 0.0)))
    return chosen


def _flat(values: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([value.double().flatten() for _, value in sorted(values.items())])
