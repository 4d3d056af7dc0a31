"""Collection of the p-values of a check, and the findings at a level that holds for all of them together."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class TestedMessages:
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
    _tests: dict[tuple[str, str], list[TestedMessages]] = field(default_factory=lambda: defaultdict(list))
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
        is_test = ~np.isnan(p)
        self._counts[check] += total or int(is_test.sum())
        smallest = np.nan
        if is_test.any():
            smallest = float(p[is_test].min())
        earlier = self._smallest.get((check, parameter), np.nan)
        self._smallest[check, parameter] = float(np.fmin(smallest, earlier))
        # The threshold only falls with more tests, so what is above that of a single one is never a finding.
        is_small = p <= self.alpha / len(self.checks)
        if not is_small.any():
            return
        about = np.asarray(messages, dtype=np.int64)
        if about.ndim == 1:
            about = about[:, None]
        values = np.broadcast_to(np.asarray(measured, dtype=float), p.shape)
        self._tests[check, parameter].append(TestedMessages(p[is_small], about[is_small], values[is_small]))

    def threshold(self, check: str) -> float:
        """Largest p-value of a finding."""
        level_of_check = self.alpha / len(self.checks)
        return level_of_check / max(self._counts[check], 1)

    def adjusted(self, check: str, parameter: str) -> float:
        """Smallest p-value of a check of a parameter, times the number of all tests; NaN without tests."""
        smallest = self._smallest.get((check, parameter), np.nan)
        if np.isnan(smallest):
            return np.nan
        return min(1.0, smallest * self.alpha / self.threshold(check))

    def found(self, check: str, parameter: str) -> Iterable[TestedMessages]:
        """The tests of a check of a parameter that are findings."""
        limit = self.threshold(check)
        for tested in self._tests[check, parameter]:
            is_finding = tested.p <= limit
            if is_finding.any():
                yield TestedMessages(tested.p[is_finding], tested.messages[is_finding], tested.measured[is_finding])

    def parameters(self, check: str) -> list[str]:
        """Parameters that a check was made on."""
        return [parameter for name, parameter in self._smallest if name == check]
