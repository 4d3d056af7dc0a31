"""Sentence of advice: which of the defences that were tried on a recording keep within limits, and what they leave."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

from fedleak.evaluation.as_recorded import COSINE, DEFENCE, NONE
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.result_names import LOSS
from fedleak.evaluation.scores import SETTING, number

if TYPE_CHECKING:
    from fedleak.evaluation.gate import Gate

_NAMED = 3
"""Defences that a sentence names."""
_COLUMN = SETTING + DEFENCE
NOT_SEEN = (
    "Rounds are those of a training that the defence slows down. Not seen: what else a defence changes from round to"
    " round, attackers that learn of changes that are not declared, and attacks that were not among the best without"
    " it."
    " How far such results were from trainings with the defences: docs/audit/what-if.md."
)
NO_LIMITS = "Defences were tried on this recording. Set limits (--gate METRIC=LIMIT) to see which keep them."


Outcomes = Mapping[str, Mapping[str, str]]
"""By defence, the outcome of each limit ``NAME=BOUND``."""


def outcomes_under_defences(results: pd.DataFrame, evaluation: Evaluation, gate: Gate | None) -> Outcomes:
    """Outcome of each limit under each defence that was tried on a recording; empty without limits or defences.

    Args:
        results: results, with a row for each defence.
        evaluation: their evaluation.
        gate: function that checks the limits; None without limits.
    """
    if gate is None or not (results["metric"] == COSINE).any():
        return {}
    outcomes: dict[str, dict[str, str]] = {}
    for name in results[results["metric"] == COSINE][_COLUMN].unique():
        scores = evaluation.scores
        under_defence = dataclasses.replace(evaluation, scores=scores[scores[_COLUMN] == name])
        verdicts = gate(results[results[_COLUMN] == name], under_defence)
        outcomes[str(name)] = {f"{verdict.metric}={verdict.limit:g}": verdict.verdict for verdict in verdicts}
    return outcomes


def advice(results: pd.DataFrame, evaluation: Evaluation, outcomes: Outcomes) -> str:
    """Advice on the defences of a what-if (`fedleak.evaluation.what_if`): those within all limits that leave most,
    first.

    A defence is within a limit if the gate says so of the attacks that ran under it; where too few clients or no attack
    decide, it is not. Those within are ordered by the loss on auxiliary examples after the round, which follows the
    accuracy after ten rounds, or without it by the cosine of the round's mean update, which does not. Empty if
    no defence was tried. `NOT_SEEN` belongs next to it.

    Args:
        results: results, with a row for each defence.
        evaluation: their evaluation.
        outcomes: see `outcomes_under_defences`.
    """
    if not (results["metric"] == COSINE).any():
        return ""
    if not outcomes:
        return NO_LIMITS
    # What a defence leaves: the loss, of which less is better, or else the cosine.
    if (results["metric"] == LOSS).any():
        metric_name, label = LOSS, "auxiliary loss"
    else:
        metric_name, label = COSINE, "cosine"
    signal = results[results["metric"] == metric_name].groupby(_COLUMN, sort=False)["mean"].mean()
    worst = {name: _worst(outcomes[str(name)]) for name in signal.index}
    tried = signal.drop(NONE, errors="ignore").sort_values(ascending=metric_name == LOSS)
    within = [f"{name} ({label} {number(value)})" for name, value in tried.items() if worst[name] == "ok"]
    undecided = sum(worst[name] in ("undecided", "unchecked") for name in tried.index)
    first = f"Of {len(tried)} defences that were tried on this recording, {len(within)} keep all limits"
    if within:
        verb = "leaves" if len(within) == 1 else "leave"
        first += f": {'; '.join(within[:_NAMED])} {verb} most of the round's learning"
    sentences = [f"{first}."]
    if undecided:
        sentences.append(f"Of {undecided}, too few clients or attacks decide.")
    if worst.get(NONE) == "ok":
        sentences.append("Without any, all limits are kept.")
    elif not within:
        sentences.append("Try stronger ones, sums of more clients, or other limits.")
    absent = ", ".join(evaluation.not_under_defences)
    if absent:
        sentences.append(f"Among the best, but left out under defences for their time: {absent}; give --slow.")
    return " ".join(sentences)


def _worst(outcomes: Mapping[str, str]) -> str:
    """The worst outcome of the limits under one defence."""
    descending = ("failed", "unchecked", "undecided", "ok")
    return next(outcome for outcome in descending if outcome in outcomes.values())
