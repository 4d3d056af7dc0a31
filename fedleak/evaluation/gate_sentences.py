"""Sentences of a gate: what decides a limit, about whom, with which interval, and what more is needed."""

import math

from fedleak.evaluation.audited_results import AuditedResults
from fedleak.evaluation.limited_value import LimitedValue
from fedleak.evaluation.limits import FEWEST, Limit
from fedleak.evaluation.risk import worst_clients, worst_in_words
from fedleak.evaluation.scores import number, rows_of

_NAMED = 3
"""Number of attacks that are named of those that did not run."""


def message_on_limit(limit: Limit, outcome: str, deciding: LimitedValue, tests: int, recorded: int | None) -> str:
    """Line on a limit: what decides, on which side of the limit, about whom, with which interval."""
    value = limit.sign * deciding.value
    if limit.sign > 0:
        beyond, within, extreme = "above", "below", "highest"
    else:
        beyond, within, extreme = "below", "above", "lowest"
    about = f"{deciding.about}; " if deciding.about else ""
    whom = f"({about}{_whom(limit, deciding, tests, recorded)})"
    measured = f"{deciding.measured_by.text} {limit.name} {number(value)}"
    if outcome == "failed":
        return f"GATE FAILED: {measured} is {beyond} the limit {limit.bound:g} {whom}"
    if outcome == "undecided":
        needed = _needed(limit, deciding, recorded)
        return f"GATE UNDECIDED: {measured} may be {beyond} the limit {limit.bound:g} {whom}: {needed}"
    side = "at" if value == limit.bound else within
    return (
        f"gate ok: {extreme} {limit.name} {number(value)} ({deciding.measured_by.text}) is {side} the limit"
        f" {limit.bound:g} {whom}"
    )


def _whom(limit: Limit, deciding: LimitedValue, tests: int, recorded: int | None) -> str:
    """About whom a limit is decided, with the interval and the number of clients."""
    worst_client = limit.entry.worst_client
    low, high = shown_ends(limit, deciding)
    interval = ""
    if low is not None and high is not None:
        # The interval of a worst client is the client's own, which no number of attacks widens.
        joint = f" for {tests} attacks" if tests > 1 and not worst_client else ""
        interval = f"95% interval{joint} {number(low)} to {number(high)}, "
    if worst_client:
        return f"{interval}the worst of {deciding.n} clients"
    if recorded is None and deciding.is_fact:
        return f"every client has the same value in both, n = {deciding.n}"
    if recorded is None:
        return f"for clients like these: {interval}n = {deciding.n}"
    if deciding.is_fact:
        return f"for the clients of this recording, all of them attacked, n = {deciding.n}"
    return f"for the clients of this recording, some of them attacked: {interval}n = {deciding.n}"


def shown_ends(limit: Limit, deciding: LimitedValue) -> tuple[float | None, float | None]:
    """Ends of an interval in the units of its metric; None where an end is infinite, or a client has no interval."""
    ends = [limit.sign * deciding.safe, limit.sign * deciding.leaky]
    if not all(map(math.isfinite, ends)):
        return None, None
    if limit.entry.worst_client and ends[0] == ends[1]:
        return None, None
    return min(ends), max(ends)


def _needed(limit: Limit, undecided: LimitedValue, recorded: int | None) -> str:
    """What would decide: as many clients like these as move the end of the interval to the limit."""
    if not undecided.enough:
        lacking = FEWEST - undecided.n
        return f"at least {lacking} more {_clients(lacking)} needed"
    if undecided.value > limit.signed_bound and undecided.excuse is not None:
        return undecided.excuse
    if limit.entry.worst_client:
        if undecided.leaky == math.inf:
            return "a client has no value"
        return "its interval contains the limit"
    if undecided.doubt is not None:
        return undecided.doubt
    if recorded is not None:
        return f"attack more of the {recorded} clients; with all of them it is decided"
    more = undecided.more_clients(limit.signed_bound)
    if more is None:
        return "the mean is too near to the limit for more clients to decide it"
    return f"about {more} more {_clients(more)} needed, if they are like these"


def _clients(count: int) -> str:
    if count == 1:
        return "client is"
    return "clients are"


def worst_tenth_sentence(limit: Limit, audited: AuditedResults) -> str:
    """The clients that are exposed most by an attack that keeps a limit on the mean; empty where they are unknown."""
    scores = audited.evaluation.scores
    if scores.empty or limit.entry.worst_client:
        return ""
    exposed = []
    for row in audited.rows(limit):
        of_clients = worst_clients(rows_of(scores, row))
        if len(of_clients):
            exposed.append((float(of_clients.mean()), worst_in_words(of_clients, int(row["n"]))))
    if not exposed:
        return ""
    # The attack whose most exposed clients are exposed most.
    value, whose = max(exposed, key=lambda attack: limit.sign * attack[0])
    return f"; {whose} {number(value)}"


def not_run_sentence(limit: Limit, audited: AuditedResults) -> str:
    """The attacks with the metric of a limit that did not run."""
    # An attack that broke down in part has results, and still counts as one that did not run.
    ran = {row["attack"] for row in audited.rows(limit)} - audited.evaluation.tracebacks.keys()
    measuring = [attack.name for attack in audited.attacks_of(limit) if limit.is_measured_by(attack)]
    absent = [attack for attack in measuring if attack not in ran]
    if not absent:
        return ""
    named = ", ".join(absent[:_NAMED])
    if len(absent) > _NAMED:
        named += f" and {len(absent) - _NAMED} more"
    attacks = "attack" if len(absent) == 1 else "attacks"
    return f"; {len(absent)} {attacks} with this metric did not run: {named}"
