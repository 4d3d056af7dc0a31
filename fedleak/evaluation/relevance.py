"""Which results of an audit answer a question about its recording, and which missing attacks belong to one."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.reasons import Reason

if TYPE_CHECKING:
    from fedleak.core.attack import Attack
    from fedleak.recordings.recording import Recording


def relevant(evaluation: Evaluation, attacks: Sequence[Attack], truth: Collection[str]) -> Evaluation:
    """An evaluation of `attacks` without what does not fit the recording.

    Baselines are left out of which no attack on the same question ran, unless it is slow and was not asked for: alone,
    they say nothing about the updates. Missing attacks are left out if their family does not fit. A family fits if one
    of its attacks was scored, or if the ground truth holds more than the clients' identities to score it; where it can
    score none, families fit that lack nothing else. Attacks on sums fit only if one was scored: other recordings have
    none. Attacks are left out too whose question cannot be asked of the recorded system.
    `truth` has the names in the ground truth.
    """
    evaluation = _without_lonely_baselines(evaluation, attacks)
    scored = {info.family for info in evaluation.lines.values()}
    # Attacks scored by more than who sent what, on single updates.
    families = set()
    for attack in attacks:
        needed_truth = set(attack.estimates.truth)
        on_sums = "participants" in attack.threat_model.fields
        asks_for_more = bool(needed_truth - {"clients"}) and not on_sums
        if asks_for_more and (attack.family in scored or needed_truth <= set(truth)):
            families.add(attack.family)
    # Names of the attacks of families that fit, and of those that ended in an exception.
    fitting_names = set(evaluation.tracebacks)
    for attack in attacks:
        if attack.family in families | scored:
            fitting_names |= {full_name(attack, attacks), attack.name}
    missing: dict[str, Reason] = {}
    unrelated = dict(evaluation.unrelated)
    for name, reason in evaluation.missing.items():
        fits = name in fitting_names or (not families and reason.kind == "unscored")
        if fits and reason.kind != "inapplicable":
            missing[name] = reason
        else:
            unrelated[name] = reason
    return dataclasses.replace(evaluation, missing=missing, unrelated=unrelated)


def _without_lonely_baselines(evaluation: Evaluation, attacks: Sequence[Attack]) -> Evaluation:
    """Without the baselines of questions on which attacks were to run and none did."""
    slow = {name for name, reason in evaluation.missing.items() if reason.kind == "slow"}
    # Questions of attacks, without those on which one ran or is slow.
    questions = {attack.estimates.question() for attack in attacks if not attack.baseline}
    for attack in attacks:
        if slow & {attack.name, full_name(attack, attacks)}:
            questions.discard(attack.estimates.question())
    for info in evaluation.lines.values():
        if info.role != "baseline":
            questions.discard(info.question)
    baselines = {name: info.question for name, info in evaluation.lines.items() if info.role == "baseline"}
    lonely = {name for name, question in baselines.items() if question in questions}
    if not lonely:
        return evaluation

    def rows(table: pd.DataFrame) -> pd.DataFrame:
        if len(table):
            return table[~table["attack"].isin(lonely)]
        return table

    def entries(by_label: dict[str, Any]) -> dict[str, Any]:
        return {label: value for label, value in by_label.items() if label not in lonely}

    alone = Reason("lonely-baseline", says="no attack on its question ran")
    return dataclasses.replace(
        evaluation,
        scores=rows(evaluation.scores),
        profiles=rows(evaluation.profiles),
        lines=entries(evaluation.lines),
        roc=entries(evaluation.roc),
        candidates=entries(evaluation.candidates),
        details=entries(evaluation.details),
        unrelated=evaluation.unrelated | dict.fromkeys(sorted(lonely), alone),
    )


def truth_names(recording: Recording) -> set[str]:
    """Names in the ground truth of a recording's first round."""
    first = next(recording.views(victims_per_view=1, rounds=recording.rounds[:1]), None)
    if first is None:
        return set()
    return set(recording.truth(first))


def full_name(attack: Attack, attacks: Iterable[Attack]) -> str:
    """Name of an attack, with its family if another attack has the same name."""
    same_name = sum(named.name == attack.name for named in attacks)
    if same_name > 1:
        return f"{attack.family}/{attack.name}"
    return attack.name
