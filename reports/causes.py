"""Why an attack told hardly more than what reads no update: the likely causes, from measured quantities."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from attacks.base import LocalLearner
from datamodules.deltas import Recording
from reports.judging import GUESSES, JUDGED, lower_is_better
from reports.results import Result
from reports.settings import describe
from reports.symptoms import symptoms

_NEAR = 0.2
"""Share of the way from the guess to certainty up to which an attack told hardly anything; an AUC of 0.6."""
_WIDE = 0.2
"""Width of an interval, as a share of the same way, from which more victims are needed to say anything."""
_VIEWS, _VICTIMS = 4, 16
_MATCHING = "matching"


@dataclass(frozen=True)
class Cause:
    """Why an attack failed, as far as that could be measured.

    Attributes:
        attack: its name.
        setting: the cell.
        metric: by which it was judged.
        cause: ``noise``, ``rank``, ``steps``, ``silence``, ``few-victims``, ``attack`` or ``unknown``.
        told: a sentence.
        measured: the numbers in it.
    """

    attack: str
    setting: dict[str, Any]
    metric: str
    cause: str
    told: str
    measured: dict[str, float]


Explain = Callable[[Sequence[Result]], list[Cause]]


def explainer(recording: Recording, learner: LocalLearner | None, *, seed: int) -> Explain:
    """What explains the results on a recording; it is measured only if an attack failed.

    Args:
        recording: what the server saw.
        learner: the clients' algorithm, where it is known.
        seed: of simulated clients and bootstraps.
    """

    def explain(results: Sequence[Result]) -> list[Cause]:
        failed = near_guessing(results)
        if not failed:
            return []
        first = recording.rounds[:_VIEWS]
        views = recording.views(victims_per_view=_VICTIMS, rounds=first, learner=learner)
        found = symptoms(list(itertools.islice(views, _VIEWS)), seed=seed)
        return [cause for result in failed for cause in _causes(result, results, found)]

    return explain


def near_guessing(results: Sequence[Result]) -> list[Result]:
    """Attacks that told hardly more than the best guess, each by its own metric."""
    judged: dict[tuple[str, str], Result] = {}
    for metric, result in itertools.product(JUDGED, results):
        if result.metric == metric and result.attack not in GUESSES:
            judged.setdefault((result.attack, describe(result.setting)), result)
    return [result for result in judged.values() if is_near(result, results)]


def is_near(result: Result, results: Sequence[Result]) -> bool:
    """Whether a result is near the best guess in its setting, or its interval holds that guess."""
    guess = best_guess(result, results)
    if guess is None:
        return False
    worst = result.ci95[1] if lower_is_better(result.metric) else result.ci95[0]
    return _gain(result, result.mean, guess) < _NEAR or _gain(result, worst, guess) <= 0


def best_guess(result: Result, results: Sequence[Result]) -> float | None:
    """The best mean in the same cell of what reads no update, None where there is none; of an AUC at least 0.5."""
    matching = result.attack.startswith(_MATCHING)
    beside = [
        r.mean
        for r in results
        if (r.metric, r.setting) == (result.metric, result.setting)
        and r.attack in GUESSES
        and r.attack.startswith(_MATCHING) == matching
    ]
    if result.metric == "auc":
        beside.append(0.5)
    if not beside:
        return None
    return min(beside) if lower_is_better(result.metric) else max(beside)


def told_causes(causes: Sequence[Cause]) -> list[str]:
    """A sentence for every attack and cause; attacks that share one stand together."""
    names: dict[str, list[str]] = {}
    for cause in causes:
        names.setdefault(cause.told, []).append(cause.attack)
    return [f"{', '.join(dict.fromkeys(attacks))}: {told}." for told, attacks in names.items()]


def _gain(result: Result, value: float, guess: float) -> float:
    """How far on the way from guess to certainty."""
    certain = 0.0 if lower_is_better(result.metric) else 1.0
    return (value - guess) / (certain - guess) if certain != guess else 0.0


def _causes(result: Result, results: Sequence[Result], found: Sequence[Any]) -> list[Cause]:
    def cause(kind: str, told: str, measured: dict[str, float]) -> Cause:
        return Cause(result.attack, dict(result.setting), result.metric, kind, told, measured)

    explaining = [s for s in found if s.metrics is None or result.metric in s.metrics]
    made = [cause(s.cause, s.told, s.measured) for s in explaining]
    few = _few_victims(result, results)
    if not made and few is not None:
        made.append(cause("few-victims", *few))
    better = _succeeded(result, results)
    if not made and better is not None:
        told = f"the recording leaks, but not to this attack ({better.attack}: {better.metric} {better.mean:.3f})"
        made.append(cause("attack", told, {"other": better.mean}))
    if not made:
        told = "nothing that was measured (noise, rank, local steps, silence) explains that it told hardly anything"
        made.append(cause("unknown", told, {}))
    return made


def _few_victims(result: Result, results: Sequence[Result]) -> tuple[str, dict[str, float]] | None:
    guess = best_guess(result, results)
    assert guess is not None
    low, high = sorted(_gain(result, end, guess) for end in result.ci95)
    if not (low <= 0 < _NEAR < high and high - low > _WIDE):
        return None
    told = f"too few victims to say: n = {result.n}, {result.metric} {result.ci95[0]:.3f} to {result.ci95[1]:.3f}"
    return told, {"n": result.n}


def _succeeded(result: Result, results: Sequence[Result]) -> Result | None:
    """The best other attack in the cell, where it told something."""
    others = [
        r
        for r in results
        if (r.metric, r.setting) == (result.metric, result.setting) and r.attack not in GUESSES | {result.attack}
    ]
    told = [r for r in others if not is_near(r, results)]
    key = (lambda r: -r.mean) if lower_is_better(result.metric) else (lambda r: r.mean)
    return max(told, key=key, default=None)


def as_json(causes: Sequence[Cause]) -> list[dict[str, Any]]:
    """For results.json."""
    return [dataclasses.asdict(cause) for cause in causes]
