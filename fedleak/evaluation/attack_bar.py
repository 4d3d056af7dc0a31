"""Progress bar of an evaluation: the attack that runs, the share of the work that is done, and the time left."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

from fedleak.core.progress import progress_listener
from fedleak.evaluation.time_budget import TimeBudget

_FORMAT = "{percentage:3.0f}%|{bar}| {elapsed}<{left}{postfix}"
"""Fits into 80 columns with the name of any attack; the postfix begins with a comma."""
_DECLARED = {"milliseconds": 0.005, "seconds": 3.0, "minutes": 120.0}
"""Seconds per victim by the first word of `Attack.cost`."""


class _TimedBar(tqdm):  # type: ignore[type-arg]
    """Bar whose time left is given by a function instead of the mean speed so far."""

    seconds_left: Callable[[], float | None] = staticmethod(lambda: None)

    @property
    def format_dict(self) -> dict[str, Any]:
        seconds = self.seconds_left()
        interval = "?" if seconds is None else self.format_interval(seconds)
        return {**super().format_dict, "left": interval}


class AttackBar:
    """Progress bar over all attacks, in victims attacked.

    The time left is the sum over the attacks' victims of the seconds per victim: measured in the attack's last view,
    or else declared, or else the mean of the measured ones.

    Args:
        victims: number of victims by attack, in all rounds together.
        costs: declared costs by attack, see `fedleak.core.attack.Attack.cost`.
        show: whether to show the bar.
        budget: time in which all attacks have to end; one that would not is stopped.
    """

    def __init__(
        self,
        victims: Mapping[str, int],
        costs: Mapping[str, str] | None = None,
        *,
        show: bool,
        budget: TimeBudget = TimeBudget(None),  # noqa: B008 - without a bound it has no state
    ) -> None:
        # Victims still to attack, and all of them; both may be fractions while an attack is on a view.
        self._left: dict[str, float] = dict(victims)
        self._all = dict(victims)
        self._elapsed = dict.fromkeys(victims, 0.0)
        self._budget = budget
        self._width = max((len(name) for name in victims), default=0) + len(" round 999")
        self._declared: dict[str, float] = {}
        for name, cost in (costs or {}).items():
            words = cost.split()
            if words and words[0] in _DECLARED:
                self._declared[name] = _DECLARED[words[0]]
        self._measured: dict[str, float] = {}
        self._bar = _TimedBar(total=sum(victims.values()), bar_format=_FORMAT, dynamic_ncols=True, disable=not show)
        self._bar.seconds_left = self.seconds_left

    def __enter__(self) -> "AttackBar":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    @property
    def total(self) -> int:
        """Number of victims to attack, as far as it is known."""
        return int(self._bar.total or 0)

    @property
    def done(self) -> float:
        """Number of victims attacked, with the finished share of the current view."""
        return float(self._bar.n)

    def seconds_left(self) -> float | None:
        """Estimate of the time left; None before anything was measured, if some attack declares no time."""
        rates = self._declared | self._measured
        mean = None
        if self._measured:
            mean = sum(self._measured.values()) / len(self._measured)
        seconds = 0.0
        for name, victims in self._left.items():
            if victims <= 0:
                continue
            rate = rates.get(name, mean)
            if rate is None:
                return None
            seconds += victims * rate
        return seconds

    def seconds_of(self, attack: str) -> float | None:
        """Seconds that an attack still needs: by the measured speed, or the declared one; None if neither is known."""
        rate = (self._declared | self._measured).get(attack)
        if rate is None:
            return None
        return rate * self._left.get(attack, 0.0)

    def victims_of(self, attack: str) -> int:
        """Number of victims of an attack in all rounds together."""
        return self._all[attack]

    def needed(self) -> dict[str, float]:
        """Seconds that each attack still needs whose speed was measured."""
        return {name: rate * self._left.get(name, 0.0) for name, rate in self._measured.items()}

    def seconds_of_all(self, attack: str) -> float | None:
        """Seconds that an attack needs for all victims, also those of earlier views; None before it was measured."""
        rate = self._measured.get(attack)
        if rate is None:
            return None
        return rate * self._all[attack]

    def took(self, attack: str, seconds: float) -> None:
        """Sets the seconds per victim that an attack took at least, e.g. in an earlier run."""
        self._measured[attack] = max(seconds, self._measured.get(attack, 0.0))

    def leave_out(self, attack: str) -> None:
        """Removes the work of an attack that cannot run."""
        self._bar.total = self.total - self._left.pop(attack, 0)

    @contextmanager
    def attacking(self, attack: str, victims: int, round: int | None = None) -> Iterator[None]:
        """Context in which an attack runs on a view with a number of victims, of one round or of all together."""
        where = "" if round is None else f" round {round}"
        self._bar.set_postfix_str(f"{attack}{where}".ljust(self._width))
        done = 0.0
        start = time.perf_counter()

        def advance(share: float) -> None:
            """Moves the bar to the share of the view that is done, and ends an attack that is too slow."""
            nonlocal done
            if share <= done:
                return
            step = (share - done) * victims
            done = share
            self._left[attack] = self._left.get(attack, 0) - step
            self._bar.update(min(step, self.total - self.done))
            all_victims = max(self._all.get(attack, victims), 1)
            elapsed = self._elapsed.get(attack, 0.0) + time.perf_counter() - start
            self._budget.check(elapsed, 1 - self._left[attack] / all_victims)

        with progress_listener(advance):
            yield
        elapsed = time.perf_counter() - start
        self._measured[attack] = elapsed / victims
        advance(1.0)
        self._elapsed[attack] = self._elapsed.get(attack, 0.0) + elapsed
