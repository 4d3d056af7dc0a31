"""Time budget of an audit: what does not fit into it is left out as a whole, and named with its cost."""

import itertools
import math
import time
from collections.abc import Mapping

import pandas as pd

from fedleak.evaluation.reasons import Reason
from fedleak.evaluation.scores import AttackInfo

_AFTER = 0.15, 10.0
"""Share of the budget, and seconds, for what follows the attacks: posteriors, bounds and the page."""
_SHOWN = 0.01
"""Share of the time from which an attack is named."""
_SEEN = 2.0, 0.02
"""Seconds, and share of the work, after which an attack's speed is known."""


class OutOfTimeError(BaseException):
    """Raised inside an attack that would not end in time; no ``except Exception`` swallows it.

    Attributes:
        seconds: what the attack needs for all of its victims.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"{seconds:.0f} s")


class TimeBudget:
    """Minutes for an audit, from now on; other processes share the end.

    Args:
        minutes: length; None for no bound.
    """

    def __init__(self, minutes: float | None) -> None:
        self.minutes = minutes
        self._end = math.inf if minutes is None else time.time() + _of_attacks(60 * minutes)

    @property
    def left(self) -> float:
        """Seconds left for attacks."""
        return self._end - time.time()

    def unfit(self, needed: Mapping[str, float]) -> set[str]:
        """Attacks, of those that need some seconds each, that do not fit in when those that need least come first.

        >>> TimeBudget(2).unfit({"slow": 50.0, "fast": 1.0, "slower": 60.0})
        {'slower'}
        """
        ascending = sorted(needed, key=lambda name: needed[name])
        unfitting = set()
        end = 0.0
        for name in ascending:
            end += needed[name]
            if end > self.left:
                unfitting.add(name)
        return unfitting

    def check(self, elapsed: float, share: float) -> None:
        """Ends the attack that calls this if it would not end in time.

        Args:
            elapsed: seconds that the attack took so far, on all views.
            share: share of its work on all views that is done.

        Raises:
            OutOfTimeError: it needs more than is left.
        """
        fewest_seconds, smallest_share = _SEEN
        if elapsed < fewest_seconds or share < smallest_share:
            return
        # At the speed so far.
        needed = elapsed / share
        if needed - elapsed > max(self.left, 0.0):
            raise OutOfTimeError(needed)

    def reason(self, seconds: float | None, cost: str) -> Reason:
        """Why an attack was left out that needs some seconds, or an unknown time of declared cost."""
        late = f"it does not fit into --minutes {self.minutes:g}"
        if seconds is None:
            return Reason("late", way_out="add minutes", says=f"{late}: nothing is left, and its cost is {cost}")
        # What the attacks have used so far, and what this one needs; then the fewest whole minutes that have as much.
        needed = _of_attacks(60 * (self.minutes or 0)) - self.left + seconds
        enough = next(minutes for minutes in itertools.count(1) if _of_attacks(60 * minutes) >= needed)
        return Reason(
            "late",
            way_out=f"--minutes {enough} has room for it",
            says=f"{late}: it needs {seconds:.0f} seconds for all clients",
        )


def time_shares(scores: pd.DataFrame, infos: Mapping[str, AttackInfo], seconds: float) -> str:
    """One line on the time of each attack in a table of scores, of some seconds in all; the longest come first.

    The results of an attack with the priors of its question took no time of their own.
    What another attack had computed before on the same view counts for each that uses it, so the shares of attacks that
    share work, or that run side by side in processes, may add up to more than all of the time.
    """
    takes_time = scores["attack"].map(lambda label: not infos.get(label, AttackInfo()).with_prior).astype(bool)
    # A victim has rows for several metrics, with the same seconds in each.
    by_victim = scores[takes_time].drop_duplicates(["attack", "round", "victim"])
    by_attack = by_victim.groupby("attack")["seconds"].sum()
    named = by_attack[by_attack >= _SHOWN * seconds].sort_values(ascending=False)
    parts = [f"{name} {spent:.1f} s ({spent / seconds:.0%})" for name, spent in named.items()]
    sentence = f"time: {seconds:.0f} s for the audit"
    if parts:
        sentence += f"; each alone: {', '.join(parts)}"
    return sentence


def _of_attacks(seconds: float) -> float:
    """Seconds of a budget that are for attacks: less what follows them, but at least half."""
    share, after = _AFTER
    return max(seconds / 2, (1 - share) * seconds - after)
