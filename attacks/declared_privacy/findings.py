"""Collection of the p-values of a check, and the findings at a level that holds for all of them together."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Tested:
    """Tests of one kind, with p-values and measured values ``(K,)``, on messages of numbers ``(K, W)``."""

    p: Array
    messages: NDArray[np.int64]
    measured: Array


@dataclass
class Findings:
    """p-values by check and parameter, corrected for their number when all are in.

    The level is shared equally by the checks in `checks`, and within a check by its tests (Bonferroni), so that in an
    honest recording there is any false finding at all with at most this probability.

    Attributes:
        alpha: level of all tests together.
        checks: names of the checks that share the level.
    """

    alpha: float
    checks: Sequence[str]
    _tests: dict[tuple[str, str], list[Tested]] = field(default_factory=lambda: defaultdict(list))
    _smallest: dict[tuple[str, str], float] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(
        self, check: str, parameter: str, p: Array, messages: ArrayLike, measured: ArrayLike = np.nan, total: int = 0
    ) -> None:
        """Adds tests with p-values ``p (K,)``, NaN for no test, and ``(K,)`` or one measured value.

        Each is about one or more messages, by numbers ``(K,)`` or ``(K, W)``. `total` is the number of tests, where
        only those of small p-values are given. Those of larger ones, which are no findings, are not kept: many small
        arrays between large ones that come and go would fragment the memory.
        """
        tested = ~np.isnan(p)
        self._counts[check] += total or int(tested.sum())
        smallest = float(p[tested].min()) if tested.any() else np.nan
        self._smallest[check, parameter] = float(np.fmin(smallest, self._smallest.get((check, parameter), np.nan)))
        kept = p <= self.alpha / len(self.checks)
        if not kept.any():
            return
        about = np.asarray(messages, dtype=np.int64)
        about = about[:, None] if about.ndim == 1 else about
        values = np.broadcast_to(np.asarray(measured, dtype=float), p.shape)
        self._tests[check, parameter].append(Tested(p[kept], about[kept], values[kept]))

    def threshold(self, check: str) -> float:
        """Largest p-value of a finding."""
        return self.alpha / len(self.checks) / max(self._counts[check], 1)

    def adjusted(self, check: str, parameter: str) -> float:
        """Smallest p-value of a check of a parameter, times the number of all tests; NaN without tests."""
        smallest = self._smallest.get((check, parameter), np.nan)
        return min(1.0, smallest * self.alpha / self.threshold(check)) if smallest == smallest else np.nan

    def found(self, check: str, parameter: str) -> Iterable[Tested]:
        """The tests of a check of a parameter that are findings."""
        limit = self.threshold(check)
        for one in self._tests[check, parameter]:
            below = one.p <= limit
            if below.any():
                yield Tested(one.p[below], one.messages[below], one.measured[below])

    def parameters(self, check: str) -> list[str]:
        """Parameters that a check was made on."""
        return [parameter for name, parameter in self._smallest if name == check]
