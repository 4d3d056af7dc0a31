"""Limits that are checked after every round of a running training, with intervals that hold over all looks together."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fedleak.core.attack import Attack
from fedleak.core.errors import require
from fedleak.core.metric_table import Metric, metric
from fedleak.evaluation.confidence_sequence import EXPECTED_ROUNDS, ConfidenceSequence
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.limit_names import RELATIVE, asks, check_limits, parts_of
from fedleak.evaluation.limits import MOST_UNSCORED
from fedleak.evaluation.result_names import ATTACKS

Outcome = Literal["exceeded", "kept", "open", "unmeasured"]


@dataclass(frozen=True)
class LimitState:
    """Where a limit stands after a round.

    Attributes:
        limit: name of the limit: a metric, or a question, a slash and a metric.
        at: largest value allowed; smallest if the metric is lower for more leakage.
        verdict: ``exceeded`` (for certain, once and for all), ``kept`` (the interval is on the safe side), ``open``
            (it contains the limit) or ``unmeasured`` (no attack has given a value, or one that takes part has none of
            the newest round, e.g. because it failed).
        attack: attack that decides, None for none.
        value: its mean over persons so far.
        low: lower end of its interval, None for no limit on this side.
        high: upper end.
        n: number of persons.
        rounds: number of rounds that the attack has been scored on.
        clients: pseudonyms of the clients of the newest rounds whose scores are beyond the limit, if it is exceeded.
    """

    limit: str
    at: float
    verdict: Outcome
    attack: str | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    rounds: int = 0
    clients: tuple[int, ...] = ()

    @property
    def sentence(self) -> str:
        """The state in one line."""
        if self.attack is None or self.value is None:
            return f"{self.limit}: no attack has measured it"
        if self.verdict == "unmeasured":
            return f"{self.limit}: {self.attack} has not measured it in this round"
        ends = " to ".join("?" if end is None else f"{end:.3f}" for end in (self.low, self.high))
        return (
            f"{self.limit} {self.value:.3f} ({ends}, n = {self.n}), limit {self.at:g}: {self.verdict} ({self.attack})"
        )


@dataclass(frozen=True)
class RoundScores:
    """Scores of one attack and metric in a round.

    Attributes:
        attack: label of the attack.
        metric: name of the metric.
        family: family of the attack.
        inferred: what the attack infers, in the words of a report.
        victims: ``(P,)`` pseudonyms.
        persons: ``(P,)`` client numbers; the pseudonyms where they are unknown.
        values: ``(P,)`` means of the values of each person, NaN where it has none.
        joint: whether clients affect each other's values.
    """

    attack: str
    metric: str
    family: str
    inferred: str
    victims: Sequence[int]
    persons: Sequence[int]
    values: Sequence[float]
    joint: bool


def scores_of_round(evaluation: Evaluation, metrics: Iterable[str]) -> list[RoundScores]:
    """Scores of the attacks, without baselines and references, in the evaluation of one round."""
    scores, wanted = evaluation.scores, {*metrics}
    found = []
    for (attack, name), rows in scores[scores["metric"].isin(wanted)].groupby(["attack", "metric"], sort=False):
        line = evaluation.lines.get(str(attack))
        if line is None or line.role not in ATTACKS:
            continue
        people = rows.groupby("person", sort=False).agg(victim=("victim", "first"), value=("value", "mean"))
        found.append(
            RoundScores(
                attack=str(attack),
                metric=str(name),
                family=line.family or "",
                inferred=line.tells,
                victims=[int(one) for one in people["victim"]],
                persons=[int(one) for one in people.index],
                values=[float(one) for one in people["value"]],
                joint=bool(rows["influence"].notna().any()),
            )
        )
    return found


def measuring(limits: Mapping[str, float], attacks: Sequence[Attack]) -> list[Attack]:
    """The attacks that one of the limits applies to.

    Raises:
        InputError: a limit is unknown or no value of its metric (see `fedleak.evaluation.limit_names.check_limits`), or
            is on a difference, on the worst client, or on a metric without the bound that a confidence sequence needs.
    """
    check_limits({name: limit for name, limit in limits.items() if parts_of(name)[1] not in RELATIVE}, attacks)
    for name in limits:
        entry = metric(parts_of(name)[1])
        way_out = "Use `fedleak audit DIR --gate` for it, after the training."
        right = entry.name not in RELATIVE and not entry.worst_client and math.isfinite(_span(entry)[0])
        require(right, "a limit on the mean of a metric that is bounded on its safe side", repr(name), way_out)

    def applies(attack: Attack) -> bool:
        parts = [parts_of(name) for name in limits]
        asked = [own for question, own in parts if asks(question)(attack.family, attack.estimates.inferred)]
        return not attack.baseline and bool({*asked} & {*attack.estimates.metric_names()})

    return [attack for attack in attacks if applies(attack)]


@dataclass
class _Sequence:
    """Scores of one attack under one limit, over the rounds, in units in which a limit is exceeded from below."""

    sequence: ConfidenceSequence
    beyond: tuple[int, ...] = ()
    scored: bool = True
    unscored: int = 0
    messages: int = 0


@dataclass
class SequentialGate:
    """Limits over the rounds of a training; add the scores of each round once, then read `states`.

    The attacks that have values in the first round share the probability of a false verdict of `exceeded`, over all
    limits. An attack without values in that round decides nothing later: otherwise their number could depend on what
    was found.

    Args:
        limits: limits by name, see docs/audit/gate.md.
        rounds: expected number of rounds; a wrong number costs power, not validity.
    """

    limits: Mapping[str, float]
    rounds: int = EXPECTED_ROUNDS
    _kept: dict[tuple[str, str], _Sequence] = field(default_factory=dict)
    _begun: bool = False

    def add_round(self, scores: Sequence[RoundScores]) -> None:
        """Adds the scores of a round; of the first one that has any, all attacks that take part."""
        held = {(name, one.attack): one for name in self.limits for one in scores if _applies(name, one)}
        for key, kept in self._kept.items():
            kept.scored = key in held
        for key, one in held.items():
            if not self._begun:
                low, high = _span(metric(one.metric))
                self._kept[key] = _Sequence(ConfidenceSequence(low, high, rounds=self.rounds))
            if key in self._kept:
                self._add(key, one)
        self._begun = self._begun or bool(held)

    def states(self) -> list[LimitState]:
        """The state of each limit: by the attack that exceeds it, else failed, else is open, nearest to the leak."""
        return [self._state(name, limit) for name, limit in self.limits.items()]

    def leaks(self) -> dict[str, LimitState]:
        """State of every attack under every limit, by limit and attack."""
        return {f"{name}/{attack}": self._of(name, attack) for name, attack in self._kept}

    def _add(self, key: tuple[str, str], one: RoundScores) -> None:
        kept, sign = self._kept[key], _sign(metric(one.metric))
        values = sign * np.array(one.values, dtype=float)
        known = ~np.isnan(values)
        kept.messages, kept.unscored = kept.messages + len(values), kept.unscored + int((~known).sum())
        beyond = known & (values > sign * self.limits[key[0]])
        kept.beyond = tuple(victim for victim, own in zip(one.victims, beyond.tolist(), strict=True) if own)
        if known.any():
            persons = [person for person, own in zip(one.persons, known.tolist(), strict=True) if own]
            kept.sequence.add_round(persons, values[known], joint=one.joint)

    def _of(self, name: str, attack: str) -> LimitState:
        kept, entry = self._kept[name, attack], metric(parts_of(name)[1])
        sequence, sign, limit = kept.sequence, _sign(entry), self.limits[name]
        if not sequence.rounds:
            return LimitState(name, limit, "unmeasured", attack)
        tests = len(self._kept)
        exceeded = sequence.exceeds(sign * limit, tests)
        few = kept.unscored <= MOST_UNSCORED * kept.messages
        verdict: Outcome = "kept" if few and sequence.below(sign * limit) else "open"
        verdict = "exceeded" if exceeded else verdict if kept.scored else "unmeasured"
        low, high = (e if math.isfinite(e) else None for e in sorted(sign * e for e in sequence.interval(tests)))
        return LimitState(
            name,
            limit,
            verdict,
            attack,
            value=sign * sequence.mean,
            low=low,
            high=high,
            n=sequence.persons,
            rounds=sequence.rounds,
            clients=kept.beyond if exceeded else (),
        )

    def _state(self, name: str, limit: float) -> LimitState:
        found = [self._of(name, attack) for own, attack in self._kept if own == name]
        order = ("exceeded", "unmeasured", "open", "kept")
        sign = _sign(metric(parts_of(name)[1]))
        whose = min(found, key=lambda one: (order.index(one.verdict), -sign * (one.value or 0.0)), default=None)
        return whose or LimitState(name, limit, "unmeasured")


def overall(states: Sequence[LimitState]) -> Literal["exceeded", "unknown", "ok"]:
    """``exceeded`` if a limit is, ``unknown`` if none is and one is unmeasured, else ``ok``."""
    verdicts = {one.verdict for one in states}
    return "exceeded" if "exceeded" in verdicts else "unknown" if "unmeasured" in verdicts else "ok"


def _applies(name: str, one: RoundScores) -> bool:
    question, wanted = parts_of(name)
    return wanted == one.metric and asks(question)(one.family, one.inferred)


def _sign(entry: Metric) -> int:
    return -1 if entry.lower_is_better else 1


def _span(entry: Metric) -> tuple[float, float]:
    """Least and largest value of a metric times its sign."""
    low, high = entry.span or (-math.inf, math.inf)
    return (low, high) if _sign(entry) > 0 else (-high, -low)
