"""Gate of a CI job: limits on what attacks may infer from a recording.

A limit applies to every attack, or to those of one question; baselines are exempt. An attack's interval decides: the
limit holds if the whole interval is on the safe side, and is exceeded if the whole interval is beyond; otherwise it is
undecided, as it is over few clients, in a round that is beyond the limit, and where a mean hides some clients; see
`fedleak.evaluation.limits`. A limit is about clients like the recorded ones, which is an inference, or about the
clients of the recording, which is a fact where all of them were attacked. A metric with `worst_client` is limited for
each client instead. A limit may also be one on a difference, see `fedleak.evaluation.relative_limits`. What was not
measured does not pass.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from fedleak.core.attack import Attack
from fedleak.core.metric_table import metric
from fedleak.evaluation.changes import Changes
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.judging import is_judged
from fedleak.evaluation.learner_match import simulates
from fedleak.evaluation.limit_names import BEYOND_BASELINE, CHANGE, RELATIVE, asks, parts_of
from fedleak.evaluation.limits import FEWEST, Measured, measured
from fedleak.evaluation.relative_limits import Differences, beyond_baseline, changed
from fedleak.evaluation.result_names import ATTACKS
from fedleak.evaluation.risk import worst_clients, worst_in_words
from fedleak.evaluation.scores import differing, number, records, rows_of
from fedleak.evaluation.unmeasured_bits import BITS, BITS_NEED, questions_without_bits
from fedleak.evaluation.unmeasured_limits import measured_metric, why_unmeasured

FAILED = 3
"""Exit status if an attack exceeds a limit."""
UNCHECKED = 4
"""Exit status if no limit is exceeded, but no attack measured one."""
UNDECIDED = 5
"""Exit status if no limit is exceeded and all were measured, but too few clients decide one."""
Outcome = Literal["ok", "failed", "unchecked", "undecided"]
About = Literal["clients", "recording"]
"""Whom limits are about: clients like the recorded ones, or the clients of this recording."""
_STATUS: Mapping[str, int] = {"failed": FAILED, "unchecked": UNCHECKED, "undecided": UNDECIDED}
"""Exit status by outcome, the first to be found decides."""


@dataclass(frozen=True)
class Verdict:
    """Outcome of one limit.

    Attributes:
        metric: limited metric, after its question and a slash if the limit names one.
        limit: largest value allowed; smallest if the metric is lower for more leakage.
        attack: attack that decides, None if none was scored.
        value: mean of that attack over clients, or value of its worst client; None if there is none.
        low: lower end of the value's interval, None if it has none.
        high: upper end.
        n: number of clients.
        verdict: ``ok``, ``failed``, ``undecided`` (the interval contains the limit) or ``unchecked`` (no value).
        message: line to print.
        about: whom the verdict is about: ``clients`` like the recorded ones (an inference), or ``recording``, the
            clients of this recording (a fact where all of them were attacked).
    """

    metric: str
    limit: float
    attack: str | None
    value: float | None
    low: float | None
    high: float | None
    n: int
    verdict: Outcome
    message: str
    about: About = "clients"


Gate = Callable[[pd.DataFrame, Evaluation], list[Verdict]]
"""Function from results (see `fedleak.evaluation.summary.summarise`) and their evaluation to verdicts."""


class LimitError(AssertionError):
    """Limits that do not hold; the message has the gate's sentences, and `verdicts` has all verdicts."""

    def __init__(self, verdicts: Sequence[Verdict]) -> None:
        super().__init__("\n".join(one.message for one in verdicts))
        self.verdicts = verdicts


def gate(
    limits: Mapping[str, float],
    attacks: Sequence[Attack],
    changes_of: Callable[[Evaluation], Changes] | None = None,
    recorded: int | None = None,
) -> Gate:
    """Function that checks limits, by metric, on the results of attacks.

    Args:
        limits: see `check_limits`.
        attacks: attacks of the audit.
        changes_of: what changed in an evaluation from a reference, for limits on ``change``; None without a reference.
        recorded: number of clients of the recording, where limits are about these clients; None where they are about
            clients like these.
    """

    def check(results: pd.DataFrame, evaluation: Evaluation) -> list[Verdict]:
        verdicts = []
        for name, limit in limits.items():
            verdict = _verdict(name, limit, results, evaluation, attacks, changes_of, recorded)
            verdict = _with_learner(verdict, results, evaluation, attacks)
            verdicts.append(_with_all_bits(verdict, results, attacks))
        return verdicts

    return check


def gate_status(outcomes: Sequence[str]) -> int:
    """Exit status of the verdicts' outcomes: `FAILED` before `UNCHECKED` before `UNDECIDED` before 0."""
    return next((status for outcome, status in _STATUS.items() if outcome in outcomes), 0)


def _verdict(
    name: str,
    limit: float,
    results: pd.DataFrame,
    evaluation: Evaluation,
    attacks: Sequence[Attack],
    changes_of: Callable[[Evaluation], Changes] | None,
    recorded: int | None,
) -> Verdict:
    question, metric_name = parts_of(name)
    rows = _of_attacks(name, results)
    sign = -1 if metric(metric_name).lower_is_better else 1
    keys = differing(results) if len(results) else set()
    asked = [attack for attack in attacks if not attack.baseline and _is_asked(question, attack)]
    relative = metric_name in RELATIVE
    about: About = "clients" if recorded is None or relative else "recording"
    if metric_name == CHANGE and changes_of is not None:
        differences = changed(changes_of(evaluation), asks(question), limit)
    elif metric_name == BEYOND_BASELINE:
        differences = beyond_baseline(rows, results, evaluation.scores, keys, limit)
    else:
        held: list[Measured] = []
        for row in rows:
            held += measured(
                row, evaluation.scores, limit=sign * limit, keys=keys, attacks=len(rows), recorded=recorded
            )
        differences = Differences(held)
    candidates = [candidate for candidate in differences.measured if not math.isnan(candidate.value)]
    if not candidates:
        why_not = differences.left_out if relative else ""
        why_not = why_not or _why_not(name, limit, rows, results, asked, evaluation)
        message = f"gate could not be checked: {why_not}"
        return Verdict(name, limit, None, None, None, None, 0, "unchecked", message, about)
    # The worst outcome is that of the limit, and of the attacks that have it, the one nearest to the leak is named.
    outcomes = [_outcome(candidate, sign * limit) for candidate in candidates]
    outcome: Outcome = next(kind for kind in ("failed", "undecided", "ok") if kind in outcomes)
    deciding = [candidate for candidate, own in zip(candidates, outcomes, strict=True) if own == outcome]
    worst = max(deciding, key=lambda candidate: candidate.leaky if outcome == "undecided" else candidate.value)
    ends = _shown_ends(worst, sign, metric(metric_name).worst_client)
    tests = len(candidates) if relative else len(rows)
    message = _message(name, limit, worst, outcome, ends, tests, None if about == "clients" else recorded)
    if outcome == "ok" and relative:
        message += f"; {differences.left_out}" if differences.left_out else ""
    elif outcome == "ok":
        message += _not_covered(metric_name, rows, asked, evaluation)
    return Verdict(name, limit, worst.label, sign * worst.value, *ends, worst.n, outcome, message, about)


def _is_asked(question: str | None, attack: Attack) -> bool:
    """Whether a limit on a question applies to an attack."""
    return asks(question)(attack.family, attack.estimates.inferred)


def _shown_ends(worst: Measured, sign: int, worst_client: bool) -> tuple[float | None, float | None]:
    """Ends of an interval in the units of its metric; None where an end is infinite, or a client has no interval."""
    ends = [sign * worst.safe, sign * worst.leaky]
    if not all(map(math.isfinite, ends)):
        return None, None
    if worst_client and ends[0] == ends[1]:
        return None, None
    return min(ends), max(ends)


def _not_covered(name: str, rows: Sequence[Mapping[str, Any]], asked: Sequence[Attack], evaluation: Evaluation) -> str:
    """What a limit that holds says nothing about: attacks that did not run; and the clients that are exposed most."""
    added = ""
    if len(evaluation.scores) and not metric(name).worst_client:
        exposed = [(worst_clients(rows_of(evaluation.scores, row)), int(row["n"])) for row in rows]
        exposed = [(own, n) for own, n in exposed if len(own)]
        if exposed:
            # The attack whose most exposed clients are exposed most.
            choose = min if metric(name).lower_is_better else max
            worst, n = choose(exposed, key=lambda one: float(one[0].mean()))
            added = f"; {worst_in_words(worst, n)} {number(float(worst.mean()))}"
    ran = {row["attack"] for row in rows}
    measuring = [one.name for one in asked if name in one.estimates.metric_names()]
    absent = [attack for attack in measuring if attack not in ran or attack in evaluation.tracebacks]
    if not absent:
        return added
    others = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
    which = "attack" if len(absent) == 1 else "attacks"
    return f"{added}; {len(absent)} {which} with this metric did not run: {', '.join(absent[:3])}{others}"


def _with_learner(
    verdict: Verdict, results: pd.DataFrame, evaluation: Evaluation, attacks: Sequence[Attack]
) -> Verdict:
    """Unchecked instead of ok or undecided, if attacks that measured the metric simulate a learner that is wrong."""
    measured = {row["attack"] for row in _of_attacks(verdict.metric, results)}
    measuring = [attack for attack in attacks if attack.name in measured]
    if evaluation.mismatch is None or verdict.verdict == "failed" or not any(map(simulates, measuring)):
        return verdict
    message = f"gate could not be checked: {verdict.metric}, because {evaluation.mismatch}"
    return dataclasses.replace(verdict, verdict="unchecked", message=message)


def _with_all_bits(verdict: Verdict, results: pd.DataFrame, attacks: Sequence[Attack]) -> Verdict:
    """Unchecked instead of ok, if a limit on bits holds because a question has none."""
    if parts_of(verdict.metric)[1] != BITS or verdict.verdict != "ok":
        return verdict
    without = _without_bits(verdict.metric, results, attacks)
    if not without:
        return verdict
    message = (
        f"gate could not be checked: {verdict.metric}, because {without}; limit one question, e.g. composition/bits=5,"
        " or these by another metric"
    )
    return dataclasses.replace(verdict, verdict="unchecked", message=message)


def _without_bits(name: str, results: pd.DataFrame, attacks: Sequence[Attack]) -> str:
    """Which answers have no bits, and what these need; empty if there are none."""
    without = questions_without_bits(results, attacks, asks(parts_of(name)[0]))
    return f"attacks that infer {'; '.join(without)} were not measured in bits, which {BITS_NEED}" if without else ""


def _of_attacks(name: str, results: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of the attacks for a metric, or those that judge attacks, without baselines and references."""
    if results.empty:
        return []
    question, metric_name = parts_of(name)
    attacks = results[results["role"].isin(ATTACKS)]
    rows = records(attacks[is_judged(attacks) if metric_name in RELATIVE else attacks["metric"] == metric_name])
    return [row for row in rows if asks(question)(str(row["family"]), str(row["tells"]))]


def _outcome(candidate: Measured, limit: float) -> Outcome:
    if not candidate.enough:
        return "undecided"
    if candidate.safe > limit:
        return "failed" if candidate.excuse is None else "undecided"
    return "ok" if candidate.leaky <= limit and candidate.doubt is None else "undecided"


def _message(
    name: str,
    limit: float,
    worst: Measured,
    outcome: Outcome,
    ends: tuple[float | None, float | None],
    attacks: int,
    recorded: int | None,
) -> str:
    """Line on a limit: what decides, on which side of the limit, about whom, with which interval."""
    entry = metric(parts_of(name)[1])
    lower = entry.lower_is_better
    sign = -1 if lower else 1
    value = sign * worst.value
    beyond, within = ("below", "above") if lower else ("above", "below")
    about = f"({worst.about}; " if worst.about else "("
    known = f"{about}{_whom(worst, ends, attacks, recorded, entry.worst_client)})"
    measured_value = f"{worst.label} {name} {number(value)}"
    if outcome == "failed":
        return f"GATE FAILED: {measured_value} is {beyond} the limit {limit:g} {known}"
    if outcome == "undecided":
        needed = _needed(worst, sign * limit, entry.worst_client, recorded)
        return f"GATE UNDECIDED: {measured_value} may be {beyond} the limit {limit:g} {known}: {needed}"
    place = "at" if value == limit else within
    extreme = "lowest" if lower else "highest"
    return f"gate ok: {extreme} {name} {number(value)} ({worst.label}) is {place} the limit {limit:g} {known}"


def _whom(
    worst: Measured, ends: tuple[float | None, float | None], attacks: int, recorded: int | None, worst_client: bool
) -> str:
    """About whom a limit is decided, with the interval and the number of clients."""
    joint = f" for {attacks} attacks" if attacks > 1 and not worst_client else ""
    low, high = ends
    interval = "" if low is None or high is None else f"95% interval{joint} {number(low)} to {number(high)}, "
    if worst_client:
        return f"{interval}the worst of {worst.n} clients"
    if recorded is None and worst.whole:
        return f"every client has the same value in both, n = {worst.n}"
    if recorded is None:
        return f"for clients like these: {interval}n = {worst.n}"
    if worst.whole:
        return f"for the clients of this recording, all of them attacked, n = {worst.n}"
    return f"for the clients of this recording, some of them attacked: {interval}n = {worst.n}"


def _needed(candidate: Measured, limit: float, worst_client: bool, recorded: int | None) -> str:
    """What would decide: as many clients like these as move the end of the interval to the limit."""
    if not candidate.enough:
        return f"at least {FEWEST - candidate.n} more {_clients(FEWEST - candidate.n)} needed"
    if candidate.value > limit and candidate.excuse is not None:
        return candidate.excuse
    if worst_client:
        return "a client has no value" if candidate.leaky == math.inf else "its interval contains the limit"
    if candidate.doubt is not None:
        return candidate.doubt
    if recorded is not None:
        return f"attack more of the {recorded} clients; with all of them it is decided"
    more = candidate.more_clients(limit)
    if more is None:
        return "the mean is too near to the limit for more clients to decide it"
    return f"about {more} more {_clients(more)} needed, if they are like these"


def _clients(number: int) -> str:
    return "client is" if number == 1 else "clients are"


def _why_not(
    name: str,
    limit: float,
    rows: Sequence[Mapping[str, Any]],
    results: pd.DataFrame,
    asked: Sequence[Attack],
    evaluation: Evaluation,
) -> str:
    """Why a limit could not be checked; `rows` are results for its metric without a value, `asked` its attacks."""
    if rows:
        return f"{name} is not defined for any of these clients"
    did_not_run = {**evaluation.unrelated, **evaluation.missing}
    metric_here = measured_metric(name, limit, results, asked)
    ran = set() if results.empty else {*results["name"]}
    if parts_of(name)[1] == BITS and not results.empty:
        without = _without_bits(name, results, asked)
        if without:
            return f"{metric_here}no attack measured {name}: {without}"
    return metric_here + why_unmeasured(name, asked, did_not_run, ran)
