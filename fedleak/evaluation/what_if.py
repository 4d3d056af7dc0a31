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

from fedleak.attacks.composition.base import IMAGES, LABELS
from fedleak.attacks.record_membership.pool import record_losses
from fedleak.client.algorithm import ClientAlgorithm, RecordAlgorithm
from fedleak.core.attack import Attack
from fedleak.core.history import History
from fedleak.core.metric_table import CORRELATION, METRICS, POSITIVE, Metric
from fedleak.defenses.base import Defense
from fedleak.evaluation.answers import Answer, answers, goes_furthest
from fedleak.evaluation.as_recorded import COSINE as COSINE
from fedleak.evaluation.as_recorded import DEFENCE as DEFENCE
from fedleak.evaluation.as_recorded import NONE as NONE
from fedleak.evaluation.auditing import AuditResult, audit
from fedleak.evaluation.evaluate import Slow, default_setting
from fedleak.evaluation.evaluation import Evaluation, joined
from fedleak.evaluation.processes import in_processes
from fedleak.evaluation.reasons import Reason
from fedleak.evaluation.registry import REGISTRY
from fedleak.evaluation.relevance import full_name
from fedleak.evaluation.result_names import LOSS as LOSS
from fedleak.evaluation.scores import SETTING, concat
from fedleak.evaluation.steps.step import RecordingRun, RecordingStep
from fedleak.recordings import adversary_devices
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording
from fedleak.recordings.what_if import DefendedRecording

ERROR = "aggregate-error"
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
            "Aggregate cosine is that of the round's mean update with and without the defence; 1 is no change.",
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
            " mean update with the defence.",
            leak=False,
            lower_is_better=True,
            span=POSITIVE,
        ),
    )

    def rows(self, run: RecordingRun) -> Iterator[pd.DataFrame]:
        recording = run.recording
        assert isinstance(recording, DefendedRecording)
        learner = recorded_learner(recording)
        signals = {place: _signal(recording, place, learner) for place in set(recording.stands_at.values())}
        for number, place in recording.stands_at.items():
            yield run.scores(AGGREGATE, signals[place], victims=[number], round=number)


def _signal(recording: DefendedRecording, number: int, learner: ClientAlgorithm | None) -> dict[str, list[float]]:
    """Metrics of a recorded round's mean update, see `SignalKept`."""
    recorded, defended = recording.aggregates(number)
    before, after = _flat(recorded), _flat(defended)
    length = float(before.norm())
    metrics = {
        COSINE: [float(before @ after) / max(length * float(after.norm()), 1e-300)],
        ERROR: [float((after - before).norm()) / max(length, 1e-300)],
    }
    held = recording.auxiliary()
    pair = next((pair for pair in _LABELLED if {*pair} <= {*held}), None)
    if pair is not None and isinstance(learner, RecordAlgorithm) and learner.independent:
        model = learner.trained(next(recording.views(rounds=[number], learner=learner)).model)
        if model.keys() <= defended.keys():
            records, labels = (held[name][:_EXAMPLES] for name in pair)
            moved = {name: (value + defended[name])[None] for name, value in model.items()}
            sizes = learner.record_sizes(records)
            metrics[LOSS] = [float(record_losses(learner, moved, records, labels)[0] @ sizes / sizes.sum())]
    return metrics


def what_if(
    recording: Recording,
    defences: Mapping[tuple[str, Any], Sequence[Defense]],
    attacks: Sequence[Attack] | None = None,
    *,
    seed: int = 0,
    victims: int | None = None,
    slow: Slow = "none",
    jobs: int = 1,
    progress: bool = True,
) -> AuditResult:
    """Audits a recording as it is, and as if clients had used each of some defences.

    All attacks run on the recording as it is; under every defence, those run again that were best at a question, and
    their baselines. Without `slow`, the slowest of them are left out, with the reason, where all together would take
    more than two minutes under the defences, if their question has another. Results have the setting ``defence``, e.g.
    ``top-k 0.1``, and metrics of the mean update, see `SignalKept`. Attacks know what a defence publicly does, and
    adapt if they can. Rounds are those of a training with the defence, see `audited_under`.

    Args:
        recording: what the server saw.
        defences: those of a client, in order, by a name and a strength.
        attacks: attacks; None for all of this project.
        seed: seed of the attacks' and of the defences' draws.
        victims: number of clients to attack; None for all.
        slow: see `evaluation.audit`.
        jobs: number of processes in which attacks run, and then defences are tried, at the same time.
        progress: whether to show a progress bar.

    Raises:
        InputError: a defence is no function of the update; see `DefendedRecording`.
    """
    start = time.perf_counter()
    defended = {key: DefendedRecording.of(recording, chosen, seed=seed) for key, chosen in defences.items()}
    tried = [kind() for kind in REGISTRY.values()] if attacks is None else list(attacks)
    options: dict[str, Any] = {"seed": seed, "victims": victims, "slow": slow}
    plain = {**default_setting(recording), DEFENCE: NONE}
    as_it_is = DefendedRecording.of(recording, [])
    steps = [SignalKept()]
    plain_result = audit(as_it_is, tried, setting=plain, jobs=jobs, progress=progress, steps=steps, **options)
    spent = _seconds(plain_result)
    best = _best(plain_result, spent)
    each = math.inf if slow != "none" else _SECONDS * min(jobs, len(defended) or 1) / max(len(defended), 1)
    chosen = _best(plain_result, spent, most=_shared_out(each, [spent.get(name, 0.0) for name in best]))
    repeated = [attack for attack in tried if attack.baseline or (attack.family, attack.name) in chosen]
    options |= {"describe": False, "check_learner": False, "progress": False, "steps": steps}
    work = [
        (one, repeated, options | {"setting": {**plain, DEFENCE: name if strength is None else f"{name} {strength}"}})
        for (name, strength), one in defended.items()
    ]
    under = in_processes(_evaluated, work, jobs=jobs)
    parts = [plain_result, *tqdm(under, total=len(work), desc="defences", disable=not progress)]
    evaluation = joined([part.evaluation for part in parts])
    evaluation.details, evaluation.missing = dict(plain_result.evaluation.details), dict(plain_result.missing)
    for attack in tried:
        name = attack.family, attack.name
        if name in best - chosen:
            evaluation.not_under_defences[full_name(attack, tried)] = Reason(
                "under-defences",
                way_out="give --slow",
                says=f"it takes {spent[name]:.0f} s under each",
            )
    measured = {name for part in parts for name in part.metrics}
    return dataclasses.replace(
        plain_result,
        evaluation=evaluation,
        metrics=[name for name in METRICS if name in measured],
        seconds=time.perf_counter() - start,
    )


def _evaluated(work: tuple[DefendedRecording, Sequence[Attack], Mapping[str, Any]]) -> AuditResult:
    recording, attacks, options = work
    return dataclasses.replace(audited_under(recording, attacks, **options), recording=None)


def audited_under(
    recording: DefendedRecording, attacks: Sequence[Attack], *, rounds: Sequence[int] | None = None, **options: Any
) -> AuditResult:
    """Audit of a recording under its defences, in rounds of a training with them.

    A training that the defences delay stands in each round where the recorded one stood earlier, see
    `fedleak.recordings.what_if.DefendedRecording.stands_at`. Attacks on one round run on that earlier round, its scores
    count for each round that stands there, and its clients are the victims. Attacks on all messages get the recording's
    rounds as they are.

    Args:
        recording: a recording with defences.
        attacks: attacks.
        rounds: numbers of the rounds to attack; None for all.
        options: further options of `evaluation.audit`.
    """
    places = {number: place for number, place in recording.stands_at.items() if rounds is None or number in rounds}
    if all(number == place for number, place in places.items()):
        return audit(recording, attacks, rounds=rounds, **options)
    of_one_round = [attack for attack in attacks if attack.view is not History]
    of_all_messages = [attack for attack in attacks if attack.view is History]
    result = audit(recording, of_one_round, rounds=sorted({*places.values()}), **options)
    result.evaluation.scores = _in_rounds_of_training(result.evaluation, places)
    if not of_all_messages:
        return result
    of_messages = audit(recording, of_all_messages, rounds=rounds, **options | {"steps": ()})
    return dataclasses.replace(
        result,
        evaluation=joined([result.evaluation, of_messages.evaluation]),
        metrics=[name for name in METRICS if name in {*result.metrics, *of_messages.metrics}],
        attacks=attacks,
    )


def _in_rounds_of_training(evaluation: Evaluation, places: Mapping[int, int]) -> pd.DataFrame:
    """Scores of attacks on recorded rounds, once for each round of a training that stands there."""
    scores = evaluation.scores
    of_attacks = scores["attack"].isin(list(evaluation.lines))
    tables = [scores[~of_attacks]]
    for number, place in places.items():
        table = scores[of_attacks & (scores["round"] == place)].assign(round=number)
        if _ROUND in table:  # rows of their own for each round, numbered from 1
            table[_ROUND] = number + 1
        tables.append(table)
    return concat(tables)


def _seconds(result: AuditResult) -> dict[_Name, float]:
    """Seconds that attacks took."""
    once = result.scores.drop_duplicates(["attack", "seed", "round", "victim"])
    by_label = once.groupby("attack")["seconds"].sum()
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
    for left, cost in zip(range(len(costs), 0, -1), sorted(costs), strict=True):
        if cost > seconds / left:
            return seconds / left
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
        run_again = [row for row in ranked if row["name"] and not row["with_prior"]]
        names = list(dict.fromkeys((str(row["family"]), str(row["name"])) for row in run_again))
        affordable = [name for name in names if spent.get(name, 0.0) <= most]
        if affordable:
            chosen |= {*affordable[:_FEW]}
        elif names:
            chosen.add(min(names, key=lambda name: spent.get(name, 0.0)))
    return chosen


def _flat(values: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([value.double().flatten() for _, value in sorted(values.items())])
