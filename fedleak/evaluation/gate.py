"""Gate of a CI job: limits on what attacks may infer from a recording.

A limit applies to every attack, or to those of one question; baselines are exempt. An attack's interval decides: the
limit holds if the whole interval is on the safe side, and is exceeded if the whole interval is beyond; otherwise it is
undecided, as it is over few clients, in a round that is beyond the limit, and where a mean hides some clients. A limit
is about clients like the recorded ones, which is an inference, or about the clients of the recording, which is a fact
where all of them were attacked. A metric with `worst_client` is limited for each client instead. A limit may also be
one on a difference: between a run and a reference, and between attacks and the best baseline. What was not measured
does not pass.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import stats

from fedleak.core.attack import Attack
from fedleak.core.metric_table import metric
from fedleak.evaluation.changes import Change, Changes
from fedleak.evaluation.comparisons import Cells
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.judging import is_judged
from fedleak.evaluation.labels import attack_in_words
from fedleak.evaluation.learner_match import simulates
from fedleak.evaluation.limits import BEYOND_BASELINE, CHANGE, FEWEST, MOST_UNSCORED, Limit
from fedleak.evaluation.mean_interval import MOST_TIMES, TAIL, MeanOverClients
from fedleak.evaluation.paired_means import crossed, mean_over_clients, paired
from fedleak.evaluation.result_names import ATTACKS
from fedleak.evaluation.risk import worst_clients, worst_in_words
from fedleak.evaluation.scores import differing, number, records, rows_of, setting_of
from fedleak.evaluation.unmeasured_limits import BITS, measured_metric, why_unmeasured, without_bits

FAILED = 3
"""Exit status if an attack exceeds a limit."""
UNCHECKED = 4
"""Exit status if no limit is exceeded, but no attack measured one."""
UNDECIDED = 5
"""Exit status if no limit is exceeded and all were measured, but too few clients decide one."""
Outcome = Literal["ok", "failed", "unchecked", "undecided"]
About = Literal["clients", "recording"]
"""Whom limits are about: clients like the recorded ones, or the clients of this recording."""
ONE_TRAINING = (
    "each side is one training, and trainings of one system differ too; give runs of several trainings a side"
)
"""Why a difference between two trainings is no proof of a change of the system."""
_STATUS: Mapping[str, int] = {"failed": FAILED, "unchecked": UNCHECKED, "undecided": UNDECIDED}
"""Exit status by outcome, the first to be found decides."""
_NAMED = 3
"""Number of attacks that are named of those that did not run."""
_TO_NORMAL = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""


@dataclass(frozen=True)
class Verdict:
    """Outcome of one limit.

    Attributes:
        metric: limited metric, after its question and a slash if the limit names one.
        limit: largest value allowed; smallest if the metric is lower for more leakage.
        attack: label of the attack that decides, None if none was scored.
        value: mean of that attack over clients, or value of its worst client; None if there is none.
        low: lower end of the value's interval, None if it has none.
        high: upper end.
        n: number of clients.
        verdict: ``ok``, ``failed``, ``undecided`` (the interval contains the limit) or ``unchecked`` (no value).
        message: line to print.
        about: whom the verdict is about: ``clients`` like the recorded ones (an inference), or ``recording``, the
            clients of this recording (a fact where all of them were attacked).
        setting: setting in which that attack decides, of what differs between results.
        round: round whose mean decides; None for all rounds.
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
    setting: Mapping[str, Any] = field(default_factory=dict)
    round: int | None = None


Gate = Callable[[pd.DataFrame, Evaluation], list[Verdict]]
"""Function from results (see `fedleak.evaluation.summary.summarise`) and their evaluation to verdicts."""


class LimitError(AssertionError):
    """Limits that do not hold; the message has the gate's sentences, and `verdicts` has all verdicts."""

    def __init__(self, verdicts: Sequence[Verdict]) -> None:
        super().__init__("\n".join(verdict.message for verdict in verdicts))
        self.verdicts = verdicts


def gate(
    limits: Sequence[Limit],
    attacks: Sequence[Attack],
    changes_of: Callable[[Evaluation], Changes] | None = None,
    recorded: int | None = None,
) -> Gate:
    """Function that checks limits on the results of attacks.

    Args:
        limits: limits that `fedleak.evaluation.limits.check_limits` accepts.
        attacks: attacks of the audit.
        changes_of: what changed in an evaluation from a reference, for limits on ``change``; None without a reference.
        recorded: number of clients of the recording, where limits are about these clients; None where they are about
            clients like these.
    """

    def check(results: pd.DataFrame, evaluation: Evaluation) -> list[Verdict]:
        audited = _Audited(results, evaluation, attacks, changes_of, recorded)
        return [_verdict(limit, audited) for limit in limits]

    return check


def gate_status(outcomes: Sequence[str]) -> int:
    """Exit status of the verdicts' outcomes: `FAILED` before `UNCHECKED` before `UNDECIDED` before 0."""
    return next((status for outcome, status in _STATUS.items() if outcome in outcomes), 0)


@dataclass(frozen=True)
class _Audited:
    """What limits are held against: see `gate` and `Gate`."""

    results: pd.DataFrame
    evaluation: Evaluation
    attacks: Sequence[Attack]
    changes_of: Callable[[Evaluation], Changes] | None
    recorded: int | None

    @functools.cached_property
    def differing_settings(self) -> set[str]:
        """Keys of the settings that differ between results."""
        return differing(self.results) if len(self.results) else set()

    def asked(self, limit: Limit) -> list[Attack]:
        """The attacks that a limit is about."""
        return [attack for attack in self.attacks if limit.applies_to(attack)]

    def rows(self, limit: Limit) -> list[dict[str, Any]]:
        """Results that a limit is about, without baselines: of its metric, or of the metrics that judge attacks."""
        if self.results.empty:
            return []
        of_attacks = self.results[self.results["role"].isin(ATTACKS)]
        of_metric = is_judged(of_attacks) if limit.is_relative else of_attacks["metric"] == limit.metric
        return [row for row in records(of_attacks[of_metric]) if limit.applies(str(row["family"]), str(row["tells"]))]

    def recorded_for(self, limit: Limit) -> int | None:
        """Number of clients of the recording if the limit is about these; a difference is about clients like these."""
        return None if limit.is_relative else self.recorded

    def line(self, row: Mapping[str, Any]) -> "Line":
        """Attack and setting of a row of results."""
        setting = {key: value for key, value in setting_of(row).items() if key in self.differing_settings}
        return Line(str(row["attack"]), setting)


# Verdicts.


def _verdict(limit: Limit, audited: _Audited) -> Verdict:
    """The verdict on one limit: that of the attack that decides, unless that says too little."""
    against_limit = _against(limit, audited)
    defined = [value for value in against_limit.values if not math.isnan(value.value)]
    if defined:
        verdict = _decided(limit, defined, against_limit.left_out, audited)
    else:
        verdict = _unmeasured(limit, against_limit.left_out, audited)
    why_not = _why_no_proof(limit, verdict.verdict, audited)
    if not why_not:
        return verdict
    message = f"gate could not be checked: {limit.name}, because {why_not}"
    return dataclasses.replace(verdict, verdict="unchecked", message=message)


def _unmeasured(limit: Limit, left_out: str, audited: _Audited) -> Verdict:
    """The verdict where there is no value."""
    return Verdict(
        metric=limit.name,
        limit=limit.bound,
        attack=None,
        value=None,
        low=None,
        high=None,
        n=0,
        verdict="unchecked",
        message=f"gate could not be checked: {left_out or _why_unmeasured(limit, audited)}",
        about="clients" if audited.recorded_for(limit) is None else "recording",
    )


def _why_unmeasured(limit: Limit, audited: _Audited) -> str:
    """Why there is no value."""
    results, evaluation = audited.results, audited.evaluation
    if audited.rows(limit):
        return f"{limit.name} is not defined for any of these clients"
    asked = audited.asked(limit)
    metric_here = measured_metric(limit, results, asked)
    lacking_bits = without_bits(limit, results, asked) if limit.metric == BITS and not results.empty else ""
    if lacking_bits:
        return f"{metric_here}no attack measured {limit.name}: {lacking_bits}"
    ran = set() if results.empty else {*results["name"]}
    return metric_here + why_unmeasured(limit, asked, {**evaluation.unrelated, **evaluation.missing}, ran)


def _decided(limit: Limit, values: Sequence["Measured"], left_out: str, audited: _Audited) -> Verdict:
    """The verdict by some values, none of which is NaN."""
    outcome, deciding = _deciding(limit, values)
    low, high = _shown_ends(limit, deciding)
    recorded = audited.recorded_for(limit)
    tests = len(values) if limit.is_relative else len(audited.rows(limit))
    message = _message(limit, outcome, deciding, tests, recorded)
    if outcome == "ok":
        # What the limit says nothing about.
        if not limit.is_relative:
            message += _worst_tenth(limit, audited) + _did_not_run(limit, audited)
        elif left_out:
            message += f"; {left_out}"
    return Verdict(
        metric=limit.name,
        limit=limit.bound,
        attack=deciding.line.attack,
        value=limit.sign * deciding.value,
        low=low,
        high=high,
        n=deciding.n,
        verdict=outcome,
        message=message,
        about="clients" if recorded is None else "recording",
        setting=deciding.line.setting,
        round=deciding.line.round,
    )


def _deciding(limit: Limit, values: Sequence["Measured"]) -> tuple[Outcome, "Measured"]:
    """The worst outcome is that of the limit, and of the values that have it, the one nearest to the leak decides."""
    outcomes = [_outcome(value, limit.signed_bound) for value in values]
    worst: Outcome = next(outcome for outcome in ("failed", "undecided", "ok") if outcome in outcomes)
    candidates = [value for value, outcome in zip(values, outcomes, strict=True) if outcome == worst]
    if worst == "undecided":
        return worst, max(candidates, key=lambda value: value.leaky)
    return worst, max(candidates, key=lambda value: value.value)


def _outcome(value: "Measured", signed_bound: float) -> Outcome:
    if not value.enough:
        return "undecided"
    if value.safe > signed_bound:
        return "failed" if value.excuse is None else "undecided"
    return "ok" if value.leaky <= signed_bound and value.doubt is None else "undecided"


def _why_no_proof(limit: Limit, outcome: Outcome, audited: _Audited) -> str:
    """Why an outcome says too little, although attacks gave values; empty for no reason."""
    mismatch = audited.evaluation.mismatch
    if mismatch is not None and outcome != "failed":
        # Attacks that simulate a learner that is wrong infer too little, so that only what fails is shown.
        measured = {row["attack"] for row in audited.rows(limit)}
        if any(simulates(attack) for attack in audited.attacks if attack.name in measured):
            return mismatch
    if limit.metric == BITS and outcome == "ok":
        lacking = without_bits(limit, audited.results, audited.attacks)
        if lacking:
            return f"{lacking}; limit one question, e.g. composition/bits=5, or these by another metric"
    return ""


# Sentences.


def _message(limit: Limit, outcome: Outcome, deciding: "Measured", tests: int, recorded: int | None) -> str:
    """Line on a limit: what decides, on which side of the limit, about whom, with which interval."""
    value = limit.sign * deciding.value
    beyond, within, extreme = ("above", "below", "highest") if limit.sign > 0 else ("below", "above", "lowest")
    about = f"{deciding.about}; " if deciding.about else ""
    whom = f"({about}{_whom(limit, deciding, tests, recorded)})"
    measured = f"{deciding.line.text} {limit.name} {number(value)}"
    if outcome == "failed":
        return f"GATE FAILED: {measured} is {beyond} the limit {limit.bound:g} {whom}"
    if outcome == "undecided":
        needed = _needed(limit, deciding, recorded)
        return f"GATE UNDECIDED: {measured} may be {beyond} the limit {limit.bound:g} {whom}: {needed}"
    place = "at" if value == limit.bound else within
    return (
        f"gate ok: {extreme} {limit.name} {number(value)} ({deciding.line.text}) is {place} the limit"
        f" {limit.bound:g} {whom}"
    )


def _whom(limit: Limit, deciding: "Measured", tests: int, recorded: int | None) -> str:
    """About whom a limit is decided, with the interval and the number of clients."""
    worst_client = limit.entry.worst_client
    joint = f" for {tests} attacks" if tests > 1 and not worst_client else ""
    low, high = _shown_ends(limit, deciding)
    interval = "" if low is None or high is None else f"95% interval{joint} {number(low)} to {number(high)}, "
    if worst_client:
        return f"{interval}the worst of {deciding.n} clients"
    if recorded is None and deciding.whole:
        return f"every client has the same value in both, n = {deciding.n}"
    if recorded is None:
        return f"for clients like these: {interval}n = {deciding.n}"
    if deciding.whole:
        return f"for the clients of this recording, all of them attacked, n = {deciding.n}"
    return f"for the clients of this recording, some of them attacked: {interval}n = {deciding.n}"


def _shown_ends(limit: Limit, deciding: "Measured") -> tuple[float | None, float | None]:
    """Ends of an interval in the units of its metric; None where an end is infinite, or a client has no interval."""
    ends = [limit.sign * deciding.safe, limit.sign * deciding.leaky]
    if not all(map(math.isfinite, ends)):
        return None, None
    if limit.entry.worst_client and ends[0] == ends[1]:
        return None, None
    return min(ends), max(ends)


def _needed(limit: Limit, undecided: "Measured", recorded: int | None) -> str:
    """What would decide: as many clients like these as move the end of the interval to the limit."""
    if not undecided.enough:
        lacking = FEWEST - undecided.n
        return f"at least {lacking} more {_clients(lacking)} needed"
    if undecided.value > limit.signed_bound and undecided.excuse is not None:
        return undecided.excuse
    if limit.entry.worst_client:
        return "a client has no value" if undecided.leaky == math.inf else "its interval contains the limit"
    if undecided.doubt is not None:
        return undecided.doubt
    if recorded is not None:
        return f"attack more of the {recorded} clients; with all of them it is decided"
    more = undecided.more_clients(limit.signed_bound)
    if more is None:
        return "the mean is too near to the limit for more clients to decide it"
    return f"about {more} more {_clients(more)} needed, if they are like these"


def _clients(count: int) -> str:
    return "client is" if count == 1 else "clients are"


def _worst_tenth(limit: Limit, audited: _Audited) -> str:
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


def _did_not_run(limit: Limit, audited: _Audited) -> str:
    """The attacks with the metric of a limit that did not run."""
    ran = {row["attack"] for row in audited.rows(limit)} - audited.evaluation.tracebacks.keys()
    measuring = [attack.name for attack in audited.asked(limit) if limit.is_measured_by(attack)]
    absent = [attack for attack in measuring if attack not in ran]
    if not absent:
        return ""
    others = f" and {len(absent) - _NAMED} more" if len(absent) > _NAMED else ""
    attacks = "attack" if len(absent) == 1 else "attacks"
    return f"; {len(absent)} {attacks} with this metric did not run: {', '.join(absent[:_NAMED])}{others}"


# Values that are held against a limit.


@dataclass(frozen=True)
class Line:
    """What a value is of: an attack in a setting, over all rounds or in one."""

    attack: str
    setting: Mapping[str, Any] = field(default_factory=dict)
    round: int | None = None

    @property
    def text(self) -> str:
        """The line in words."""
        return attack_in_words(self.attack, self.setting, self.round)


@dataclass(frozen=True)
class Measured:
    """Value of one attack in one setting, in units in which a limit is exceeded from below: the metric times its sign.

    Attributes:
        line: attack, with its setting if there are several, and its round.
        value: mean over clients, or value of the worst client.
        safe: end of the interval that is further from the leak, one-sided at 97.5% for all attacks and rounds together.
        leaky: end that is nearer to it, one-sided at 97.5%; infinite if a client that could be the worst has no value.
        n: number of clients.
        enough: whether there are enough clients to decide.
        doubt: why it does not pass, although the interval is on the safe side of the limit; None for no reason.
        about: what the value is made of, for the message; empty for the attack's own metric.
        excuse: why it does not fail, although the whole interval is beyond the limit; None for no reason.
        whole: whether the mean is a fact: all clients of the recording that the limit is about were attacked, or a
            change is 0 for every client.
        mean: mean of which the ends are, None where they are not made of one.
        tests: number of tests together for which `safe` is.
    """

    line: Line
    value: float
    safe: float
    leaky: float
    n: int
    enough: bool
    doubt: str | None = None
    about: str = ""
    excuse: str | None = None
    whole: bool = False
    mean: MeanOverClients | None = None
    tests: int = 1

    def more_clients(self, signed_bound: float) -> int | None:
        """About how many more clients would decide, if they are like these; None for no number.

        Without a mean, the distance of an end from it is taken to shrink with the root of the number of clients.
        """
        if self.mean is not None:
            times = self.mean.times_that_decide(signed_bound, low_tests=self.tests)
        else:
            end = self.safe if self.value > signed_bound else self.leaky
            gap = signed_bound - self.value
            times = ((end - self.value) / gap) ** 2 if gap else math.inf
        return math.ceil(round(self.n * (times - 1), 6)) if times <= MOST_TIMES else None


@dataclass(frozen=True)
class AgainstLimit:
    """Values that a limit is held against.

    Attributes:
        values: the values.
        left_out: what a limit on differences says nothing about; empty for nothing.
    """

    values: Sequence[Measured]
    left_out: str = ""


def _against(limit: Limit, audited: _Audited) -> AgainstLimit:
    """The values that a limit is held against."""
    if limit.metric == CHANGE:
        if audited.changes_of is None:
            return AgainstLimit([])
        return _changed(limit, audited.changes_of(audited.evaluation))
    rows = audited.rows(limit)
    if limit.metric == BEYOND_BASELINE:
        return _beyond_baseline(limit, rows, audited)
    return AgainstLimit([value for row in rows for value in _measured(limit, row, audited, tests=len(rows))])


def _measured(limit: Limit, row: Mapping[str, Any], audited: _Audited, tests: int) -> Iterator[Measured]:
    """An attack's mean over clients, and that of each round whose mean is beyond the limit; or its worst client.

    `tests` is the number of attacks and settings that are held against the limit.
    """
    line, sign = audited.line(row), limit.sign
    if limit.entry.worst_client:
        yield _worst_client(limit, row, line, audited.evaluation.scores)
        return
    scores = rows_of(audited.evaluation.scores, row)
    if scores.empty:
        # Results without their scores have the ends for one test.
        safe, leaky = sorted((sign * row["low"], sign * row["high"]))
        n = int(row["n"])
        enough = n >= FEWEST or audited.recorded is not None
        yield Measured(line, sign * row["mean"], safe, leaky, n, enough)
        return
    not_drawn = None if audited.recorded is None else 1 - scores["victim"].nunique() / audited.recorded
    of_clients = sign * crossed(scores).mean(axis=1)
    doubt = hidden(of_clients, limit=limit.signed_bound, tests=tests, binary=limit.entry.binary, sign=sign)
    yield dataclasses.replace(_of_mean(limit, line, scores, tests, not_drawn), doubt=doubt)
    yield from _rounds(limit, line, scores, tests, not_drawn)


def _of_mean(limit: Limit, line: Line, scores: pd.DataFrame, tests: int, not_drawn: float | None) -> Measured:
    """Mean over clients of some scores, whose end further from the leak is for so many tests.

    `not_drawn` is the share of the clients of the recording that were not attacked, where the limit is about these
    clients; None where it is about clients like these.
    """
    mean = mean_over_clients(scores)
    if limit.sign < 0:
        mean = -mean
    if not_drawn is None:
        safe, leaky = mean.ends(low_tests=tests)
    else:
        safe, leaky = mean.ends_of_recording(not_drawn, low_tests=tests)
    n = len(crossed(scores).mean(axis=1).dropna())
    return Measured(
        line,
        mean.mean,
        safe,
        leaky,
        n,
        enough=n >= FEWEST or not_drawn is not None,
        whole=not_drawn is not None and not_drawn <= 0,
        mean=mean,
        tests=tests,
    )


def _rounds(limit: Limit, line: Line, scores: pd.DataFrame, tests: int, not_drawn: float | None) -> Iterator[Measured]:
    """Rounds whose mean over clients is beyond the limit, where clients have values of their own.

    Of the clients of a round, as many were attacked as of all clients of the recording.
    """
    rounds = scores["round"].nunique()
    if rounds < 2 or scores["influence"].notna().any():
        return
    for round_number, of_round in scores.groupby("round"):
        values = crossed(of_round).mean(axis=1).dropna()
        if len(values) and limit.exceeded_by(float(values.mean())):
            in_round = dataclasses.replace(line, round=int(str(round_number)))
            value = _of_mean(limit, in_round, of_round, tests * rounds, not_drawn)
            yield dataclasses.replace(value, doubt="one round is beyond the limit")


def _worst_client(limit: Limit, row: Mapping[str, Any], line: Line, scores: pd.DataFrame) -> Measured:
    """Value of the worst client, with the interval of metrics ``NAME-low`` and ``NAME-high`` if there are such."""

    def by_client(metric_name: str) -> "pd.Series[float]":
        of_metric = rows_of(scores, {**row, "metric": metric_name})
        return (limit.sign * of_metric["value"]).groupby(of_metric["person"]).max()

    values = by_client(limit.metric)
    low, high = by_client(f"{limit.metric}-low"), by_client(f"{limit.metric}-high")
    safe, leaky = (low, high) if limit.sign > 0 else (high, low)
    # A client without an interval has its value for both ends.
    worst_safe = float(safe.reindex(values.index).fillna(values).max())
    worst_leaky = float(leaky.reindex(values.index).fillna(values).max())
    if values.isna().any():
        worst_leaky = math.inf
    return Measured(line, float(values.max()), worst_safe, worst_leaky, len(values), enough=True)


def hidden(values: "pd.Series[float]", *, limit: float, tests: int, binary: bool, sign: int = 1) -> str | None:
    """What the mean of clients' values hides: clients without a value, or some beyond the limit unlike the others.

    The others' spread about their median says how many clients would be beyond the limit if all were alike; the
    binomial distribution, whether more are.

    Args:
        values: ``(P,)`` values in the units of `Measured`, NaN where a client has none.
        limit: limit in the same units.
        tests: number of attacks and settings that are held against the limit.
        binary: whether a single value is 0 or 1, so that values are never alike.
        sign: factor from these units to those of the metric.
    """
    people, known = len(values), values.dropna().to_numpy()
    if people - len(known) > MOST_UNSCORED * people:
        return f"{people - len(known)} of {people} clients have no value"
    beyond = known[known > limit]
    if binary or not len(beyond):
        return None
    middle = float(np.median(known))
    spread = _TO_NORMAL * float(np.median(np.abs(known - middle)))
    alike = float(stats.norm.sf((limit - middle) / spread)) if spread else float(middle > limit)
    if stats.binom.sf(len(beyond) - 1, len(known), alike) >= TAIL / tests:
        return None
    # A message names nobody: a mean of few clients is nearly their own values, and with the mean over all it gives
    # that of the others.
    others = len(known) - len(beyond)
    shown = len(beyond) >= FEWEST and (others == 0 or others >= FEWEST)
    mean = f", {sign * float(beyond.mean()):.3f} on average" if shown else ""
    return f"{len(beyond)} of {len(known)} clients are beyond the limit{mean}, unlike the others"


# Differences, in units in which more is more leakage.


def _changed(limit: Limit, changes: Changes) -> AgainstLimit:
    """Differences between the best attacks of each question in a run and in the reference."""
    rows = [row for row in changes.rows if row.best and limit.applies(row.family, row.question)]
    values = [_change(limit, row, changes, tests=len(rows)) for row in rows]
    return AgainstLimit(values, "; ".join(note.rstrip(".") for note in changes.not_compared))


def _change(limit: Limit, row: Change, changes: Changes, tests: int) -> Measured:
    """One difference between a run and the reference, of so many."""
    value = row.sign * row.change
    doubt = excuse = None
    if changes.same:
        # Every client and attack has the same value in both, so that nothing is inferred.
        safe = leaky = value
    else:
        low_tests, high_tests = (tests, 1) if row.sign > 0 else (1, tests)
        safe, leaky = sorted(row.sign * end for end in row.ends(low_tests, high_tests))
        if row.gaps is not None:
            gaps = row.sign * row.gaps
            doubt = hidden(gaps, limit=limit.bound, tests=tests, binary=metric(row.metric).binary)
        if row.seeds < 2:
            excuse = ONE_TRAINING
    before = f"{row.metric} {number(row.reference)} by {row.reference_attack} in {changes.reference}"
    return Measured(
        Line(row.attack),
        value,
        safe,
        leaky,
        row.n,
        enough=changes.same or row.n >= FEWEST,
        doubt=doubt,
        about=f"{row.family}: {before}, {number(row.value)} in {changes.run}",
        excuse=excuse,
        whole=changes.same,
    )


def _beyond_baseline(limit: Limit, rows: Sequence[Mapping[str, Any]], audited: _Audited) -> AgainstLimit:
    """Differences between attacks and the best baseline of their question and setting, on the same clients.

    What an attack is compared with is that of `fedleak.evaluation.comparisons.Cells.comparison`.
    `rows` are results of attacks for metrics that judge them.
    """
    values, without_baseline = [], []
    cells = Cells(audited.results)
    for row in rows:
        value = _over_baseline(limit, row, audited, cells, tests=len(rows))
        if value is None:
            without_baseline.append(f"{row['family']}/{row['metric']}")
        else:
            values.append(value)
    named = ", ".join(dict.fromkeys(without_baseline))
    return AgainstLimit(values, f"no baseline for {named}" if named else "")


def _over_baseline(
    limit: Limit, row: Mapping[str, Any], audited: _Audited, cells: Cells, tests: int
) -> Measured | None:
    """The difference between an attack and its best baseline, of so many; None if there is none."""
    all_scores = audited.evaluation.scores
    scores = rows_of(all_scores, row)
    best = _best_baseline(row, cells)
    if best is None or scores.empty or not math.isfinite(row["mean"]):
        return None
    label, baseline = best
    if isinstance(baseline, float):
        mean = mean_over_clients(scores).minus(baseline)
        gaps = crossed(scores) - baseline
    else:
        mean, gaps, _ = paired(scores, rows_of(all_scores, baseline).assign(metric=row["metric"]))
    if gaps.empty:
        return None
    n = int(gaps.notna().any(axis=1).sum())
    of_clients = gaps.mean(axis=1)
    entry = metric(row["metric"])
    if entry.lower_is_better:
        mean, of_clients = -mean, -of_clients
    safe, leaky = mean.ends(low_tests=tests)
    return Measured(
        audited.line(row),
        mean.mean,
        safe,
        leaky,
        n,
        enough=n >= FEWEST,
        doubt=hidden(of_clients, limit=limit.bound, tests=tests, binary=entry.binary),
        about=f"{row['family']}: {row['metric']} {number(row['mean'])}, {label}",
        mean=mean,
        tests=tests,
    )


def _best_baseline(row: Mapping[str, Any], cells: Cells) -> tuple[str, float | dict[str, Any]] | None:
    """Description of what an attack is compared with, and its value or its row of results; None for nothing."""
    comparison = cells.comparison(row)
    if comparison is None:
        return None
    if comparison.row is not None:
        return f"{comparison.name} {number(comparison.value)}", comparison.row
    if comparison.kind == "guessing":
        return f"guessing {comparison.value:g}", comparison.value
    return "no baseline", comparison.value
