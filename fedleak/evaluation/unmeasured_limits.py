"""Why no attack measured a limit: first the metric that its question has for the recorded network, then what lacks."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from fedleak.core.metric_table import METRICS, judges, metric
from fedleak.evaluation.judging import is_judged
from fedleak.evaluation.reasons import Reason, nearest_reason
from fedleak.evaluation.result_names import ATTACKS
from fedleak.evaluation.scores import records

if TYPE_CHECKING:
    from fedleak.core.attack import Attack
    from fedleak.evaluation.limits import Limit

BITS = "bits"
"""Metric: what an update adds to the prior."""
_BITS_NEED = "need the records themselves, or the answers of at least five clients, and of two for each class"
"""What bits of a question need, in a sentence."""
_NAMED = 3
"""Number of attacks that are named where nothing else is known of them."""


def why_unmeasured(
    limit: Limit, attacks: Sequence[Attack], did_not_run: Mapping[str, Reason], ran: Collection[str] = ()
) -> str:
    """What the attacks lack that have a limit's metric: the reason of the one that lacks least.

    Args:
        limit: the limit.
        attacks: attacks that it is about.
        did_not_run: reason by attack, under its name or ``family/name``.
        ran: names of the attacks with results.
    """
    measuring = _measuring(limit, attacks)
    if not measuring:
        return f"no attack of this audit measures {limit.name}"
    # Reasons are under the attack's name, or with its family where two attacks have one name.
    lacking = {}
    for attack in measuring:
        for label in (f"{attack.family}/{attack.name}", attack.name):
            if label in did_not_run:
                lacking[attack.name] = did_not_run[label]
    if not lacking:
        without_value = [attack for attack in measuring if attack.name in ran]
        if without_value:
            return f"no attack measured {limit.name}: the answers of {_some(without_value)} have none on this recording"
        return f"no attack measured {limit.name}: {_some(measuring)} do not fit this recording"
    # One reason for all, or that of the attack that lacks least.
    reason = nearest_reason(lacking)
    if len(lacking) > 1 and set(lacking.values()) == {reason}:
        because = f"none of {len(lacking)} attacks could run: {reason}"
    else:
        nearest = next(name for name, of_attack in lacking.items() if of_attack == reason)
        because = f"{nearest} could not run: {reason}"
        more = len(lacking) - 1
        if more:
            noun = "others" if more > 1 else "other"
            because += f"; nor could {more} {noun}"
    return f"no attack measured {limit.name}, because {because}".rstrip(".")


def _some(attacks: Sequence[Attack]) -> str:
    """The names of some attacks, of many the first."""
    names = ", ".join(attack.name for attack in attacks[:_NAMED])
    if len(attacks) > _NAMED:
        names += f" and {len(attacks) - _NAMED} others"
    return names


def measured_metric(limit: Limit, results: pd.DataFrame, attacks: Sequence[Attack]) -> str:
    """Start of a sentence on the metric that attacks of the same family were scored by; empty if there is none.

    Args:
        limit: the limit.
        results: all results.
        attacks: attacks that it is about.
    """
    if results.empty:
        return ""
    # Families that have the metric of the limit for other networks, and what their attacks were scored by here.
    families = {attack.family for attack in _measuring(limit, attacks)}
    scored = results[results["role"].isin(ATTACKS) & results["mean"].notna()]
    scored = scored[scored["family"].isin(families) & is_judged(scored)]
    rows = records(scored.drop_duplicates(["family", "metric"]))
    return _sentence([(row["family"], row["tells"], row["metric"]) for row in rows], limit)


def fitting_metric(limit: Limit, attacks: Sequence[Attack], did_not_run: Mapping[str, Reason]) -> str:
    """The same by attacks of the same family that fit the recording, where no others than those of limits run.

    Args:
        limit: the limit.
        attacks: all attacks.
        did_not_run: reason by ``family/name`` of the attacks that do not fit.
    """
    limited = [attack for attack in attacks if limit.applies_to(attack)]
    families = {attack.family for attack in _measuring(limit, limited)}
    metrics = []
    for attack in attacks:
        fits = f"{attack.family}/{attack.name}" not in did_not_run
        if attack.family not in families or attack.baseline or not fits:
            continue
        for metric_name in attack.estimates.metric_names():
            if judges(metric_name, attack.estimates.question()):
                metrics.append((attack.family, attack.estimates.inferred, metric_name))
    return _sentence(metrics, limit)


def without_bits(limit: Limit, results: pd.DataFrame, attacks: Sequence[Attack]) -> str:
    """Which answers to the questions of a limit have no bits, and what these need; empty if all have.

    Bits need the records themselves, or answers that have probabilities, of at least five people and of two for each
    class (see `fedleak.evaluation.posterior.posterior`). Questions that need no ground truth, such as whether declared
    noise is there, ask nothing about a client's data.

    Args:
        limit: the limit.
        results: all results.
        attacks: attacks of the audit.
    """
    about_data = {attack.estimates.question() for attack in attacks if attack.estimates.truth}
    scored = results[results["role"].isin(ATTACKS) & results["mean"].notna()]
    with_bits = set(scored["question"][scored["metric"] == BITS])
    # One row for each question that an attack answered.
    judged = [name for name, entry in METRICS.items() if entry.judged]
    answered = records(scored[scored["metric"].isin(judged)].drop_duplicates("question"))
    lacking = []
    for row in answered:
        is_without = row["question"] in about_data - with_bits
        if is_without and limit.applies(str(row["family"]), str(row["tells"])):
            lacking.append(str(row["tells"]))
    if not lacking:
        return ""
    return f"attacks that infer {'; '.join(lacking)} were not measured in bits, which {_BITS_NEED}"


def _measuring(limit: Limit, attacks: Sequence[Attack]) -> list[Attack]:
    return [attack for attack in attacks if limit.is_measured_by(attack)]


def _sentence(metrics: Sequence[tuple[str, str, str]], limit: Limit) -> str:
    """Start of a sentence on the first of some ``(family, what it infers, metric)``; empty for none.

    Of a limit that names no question, several may be meant; it is then empty too.
    """
    if len({family for family, _, _ in metrics}) != 1:
        return ""
    family, inferred, metric_name = metrics[0]
    # The bound is suggested only if the other metric can have it.
    least, most = metric(metric_name).span or (-math.inf, math.inf)
    value = f"{limit.bound:g}, or another limit on it" if least <= limit.bound <= most else "LIMIT"
    return (
        f"for this network the question {inferred!r} is measured by {metric_name}; write"
        f" {family}/{metric_name}={value}; "
    )
