"""Limits that are checked after every round of a running training, with intervals that hold over all looks together."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fedleak.core.attack import Attack
from fedleak.core.errors import require
from fedleak.evaluation.confidence_sequence import EXPECTED_ROUNDS, ConfidenceSequence
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.limits import MOST_UNSCORED, Limit, check_limits
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
        low = "?" if self.low is None else f"{self.low:.3f}"
        high = "?" if self.high is None else f"{self.high:.3f}"
        return (
            f"{self.limit} {self.value:.3f} ({low} to {high}, n = {self.n}), limit {self.at:g}: {self.verdict}"
            f" ({self.attack})"
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
    scores = evaluation.scores
    scores = scores[scores["metric"].isin({*metrics})]
    of_round = []
    for (attack, name), rows in scores.groupby(["attack", "metric"], sort=False):
        info = evaluation.lines.get(str(attack))
        if info is None or info.role not in ATTACKS:
            continue
        # A person with several messages in the round has the mean of their values.
        people = rows.groupby("person", sort=False).agg(victim=("victim", "first"), value=("value", "mean"))
        of_round.append(
            RoundScores(
                attack=str(attack),
                metric=str(name),
                family=info.family or "",
                inferred=info.tells,
                victims=[int(pseudonym) for pseudonym in people["victim"]],
                persons=[int(person) for person in people.index],
                values=[float(value) for value in people["value"]],
                joint=bool(rows["influence"].notna().any()),
            )
        )
    return of_round


def measuring(limits: Sequence[Limit], attacks: Sequence[Attack]) -> list[Attack]:
    """The attacks that one of the limits applies to.

    Raises:
        InputError: a limit is unknown or no value of its metric (see `fedleak.evaluation.limits.check_limits`), or is
            on a difference, on the worst client, or on a metric without the bound that a confidence sequence needs.
    """
    check_limits([limit for limit in limits if not limit.is_relative], attacks)
    for limit in limits:
        safest, _ = limit.signed_span
        has_sequence = not limit.is_relative and not limit.entry.worst_client and math.isfinite(safest)
        require(
            has_sequence,
            "a limit on the mean of a metric that is bounded on its safe side",
            repr(limit.name),
            "Use `fedleak audit DIR --gate` for it, after the training.",
        )
    return [attack for attack in attacks if _is_limited(attack, limits)]


def _is_limited(attack: Attack, limits: Sequence[Limit]) -> bool:
    return any(limit.applies_to(attack) and limit.is_measured_by(attack) for limit in limits)


@dataclass
class _Sequence:
    """Scores of one attack under one limit, over the rounds, in units in which a limit is exceeded from below.

    Attributes:
        sequence: the means of persons.
        beyond: pseudonyms of the clients of the newest scored round that are beyond the limit.
        scored: whether the attack has scores in the newest round.
        unscored: number of messages without a value, over all rounds.
        messages: number of messages.
    """

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
        limits: limits, see docs/audit/gate.md.
        rounds: expected number of rounds; a wrong number costs power, not validity.
    """

    limits: Sequence[Limit]
    rounds: int = EXPECTED_ROUNDS
    _sequences: dict[tuple[Limit, str], _Sequence] = field(default_factory=dict)
    _begun: bool = False

    def add_round(self, scores: Sequence[RoundScores]) -> None:
        """Adds the scores of a round; of the first one that has any, all attacks that take part."""
        scored = {}
        for limit in self.limits:
            for of_attack in scores:
                if limit.metric == of_attack.metric and limit.applies(of_attack.family, of_attack.inferred):
                    scored[limit, of_attack.attack] = of_attack
        for key, sequence in self._sequences.items():
            sequence.scored = key in scored
        for (limit, attack), of_attack in scored.items():
            # The first round with scores decides which attacks take part.
            if not self._begun:
                low, high = limit.signed_span
                self._sequences[limit, attack] = _Sequence(ConfidenceSequence(low, high, rounds=self.rounds))
            if (limit, attack) in self._sequences:
                self._add(limit, of_attack)
        self._begun = self._begun or bool(scored)

    def states(self) -> list[LimitState]:
        """State of each limit: that of its worst attack (exceeded, unmeasured, open, kept; ties by the value)."""
        return [self._state(limit) for limit in self.limits]

    def leaks(self) -> dict[str, LimitState]:
        """State of every attack under every limit, by limit and attack."""
        return {f"{limit.name}/{attack}": self._of_attack(limit, attack) for limit, attack in self._sequences}

    def _add(self, limit: Limit, scores: RoundScores) -> None:
        """Adds the values of one round to the sequence of an attack under a limit."""
        of_attack = self._sequences[limit, scores.attack]
        values = limit.sign * np.array(scores.values, dtype=float)
        has_value = ~np.isnan(values)
        of_attack.messages += len(values)
        of_attack.unscored += int((~has_value).sum())
        beyond = []
        for victim, value in zip(scores.victims, scores.values, strict=True):
            if limit.exceeded_by(value):
                beyond.append(victim)
        of_attack.beyond = tuple(beyond)
        if has_value.any():
            persons = [person for person, has in zip(scores.persons, has_value.tolist(), strict=True) if has]
            of_attack.sequence.add_round(persons, values[has_value], joint=scores.joint)

    def _of_attack(self, limit: Limit, attack: str) -> LimitState:
        """Where a limit stands by one attack."""
        of_attack = self._sequences[limit, attack]
        sequence = of_attack.sequence
        if not sequence.rounds:
            return LimitState(limit.name, limit.bound, "unmeasured", attack)
        # All attacks and limits share the probability of a false verdict.
        tests = len(self._sequences)
        exceeded = sequence.exceeds(limit.signed_bound, tests)
        verdict: Outcome = "exceeded" if exceeded else self._not_exceeded(limit, of_attack)
        low, high = sorted(limit.sign * end for end in sequence.interval(tests))
        return LimitState(
            limit.name,
            limit.bound,
            verdict,
            attack,
            value=limit.sign * sequence.mean,
            low=_finite(low),
            high=_finite(high),
            n=sequence.persons,
            rounds=sequence.rounds,
            clients=of_attack.beyond if exceeded else (),
        )

    def _not_exceeded(self, limit: Limit, of_attack: _Sequence) -> Outcome:
        """What is known of a limit that an attack does not exceed."""
        if not of_attack.scored:
            return "unmeasured"
        few_unscored = of_attack.unscored <= MOST_UNSCORED * of_attack.messages
        if few_unscored and of_attack.sequence.below(limit.signed_bound):
            return "kept"
        return "open"

    def _state(self, limit: Limit) -> LimitState:
        """State of a limit by its worst attack: by the verdict, then by the value that is nearest to the leak."""
        """State of a limit by its worst attack: by the verdict, then by the value that is nearest to the leak."""
        order = ("exceeded", "unmeasured", "open", "kept")
        states = []
        for of_limit, attack in self._sequences:
            if of_limit == limit:
                states.append(self._of_attack(limit, attack))
        if not states:
            return LimitState(limit.name, limit.bound, "unmeasured")
        return min(states, key=lambda state: (order.index(state.verdict), -limit.sign * (state.value or 0.0)))


def _finite(end: float) -> float | None:
    """An end of an interval, None for no limit on this side."""
    if math.isfinite(end):
        return end
    return None


def overall(states: Sequence[LimitState]) -> Literal["exceeded", "unknown", "ok"]:
    """``exceeded`` if a limit is, ``unknown`` if none is and one is unmeasured, else ``ok``."""
    verdicts = {state.verdict for state in states}
    if "exceeded" in verdicts:
        return "exceeded"
    if "unmeasured" in verdicts:
        return "unknown"
    return "ok"
