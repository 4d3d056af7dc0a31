"""Estimate of class compositions, with intervals."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.attacks.applicability import without_classes
from fedleak.core.answers import Quantities
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Candidates, Estimate, EstimateError, Scores, check_tensor
from fedleak.core.metric import Metric
from fedleak.core.scoring import composition_errors, exact_counts, null_class_errors
from fedleak.core.view import View

_ROUNDING = 1e-6
"""Tolerance for float32 shares, e.g. of a client with one class."""
_SUM_TOLERANCE = 1e-4
"""Tolerance for the sum of float32 proportions."""


@dataclass(frozen=True, kw_only=True)
class CompositionEstimate(Estimate):
    """The share of each class among a client's examples.

    Attributes:
        proportions: ``(V, K)``, at least 0, each row summing to one.
        low: ``(V, K)`` lower bounds of the intervals, NaN if the attack gives none.
        high: ``(V, K)`` upper bounds.
        present: ``(V, K)`` bool, the classes of which the client has examples.

    References:
        [Dai24], equation 3.
    """

    inferred = "what share of its examples each class has"
    truth = ("class_counts",)
    metrics: ClassVar[tuple[str | Metric, ...]] = (
        "l1",
        "l2",
        "linf",
        "exact",
        "null_false_positive",
        "null_false_negative",
        "coverage",
    )
    proportions: Tensor
    low: Tensor
    high: Tensor
    present: Tensor

    @classmethod
    def inapplicable(cls, view: View, truth: Collection[str]) -> str | None:
        return without_classes(view, truth)

    def check(self, view: View) -> None:
        shape = tuple(self.proportions.shape)
        if len(shape) != 2 or shape[0] != view.victims:
            raise EstimateError(f"proportions: expected shape ({view.victims}, K), got {shape}")
        check_tensor("low", self.low, shape, finite=False)
        check_tensor("high", self.high, shape, finite=False)
        check_tensor("present", self.present, shape, dtype=torch.bool)
        sums = self.proportions.double().sum(1)
        sums_to_one = (sums - 1).abs() < _SUM_TOLERANCE
        if not bool(sums_to_one.all() and (self.proportions >= 0).all()):
            raise EstimateError(f"proportions: expected non-negative numbers that sum to one, got sums {sums.tolist()}")
        # A comparison with NaN, of no interval, is False.
        is_below = self.low > self.proportions + _SUM_TOLERANCE
        is_above = self.high < self.proportions - _SUM_TOLERANCE
        if bool((is_below | is_above).any()):
            raise EstimateError("low and high: expected intervals that contain the proportions")

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """Distances of the proportions, exact counts, errors on null classes, and coverage of the intervals."""
        counts = truth["class_counts"].double()
        if counts.shape[1] != self.proportions.shape[1]:
            raise ViewError(f"expected an estimate of {counts.shape[1]} classes, got {self.proportions.shape[1]}")
        return self._scored(counts)

    def _scored(self, counts: Tensor) -> Scores:
        examples = counts.sum(1)
        shares = counts / counts.sum(1, keepdim=True)
        inferred = self.proportions.double()
        has_class = counts > 0
        metrics = composition_errors(inferred, shares) | null_class_errors(self.present, has_class)
        metrics |= exact_counts(inferred, counts)
        # Coverage counts the classes that the client has or seems to have: zeros would be covered without merit.
        is_inside = (shares >= self.low - _ROUNDING) & (shares <= self.high + _ROUNDING)
        has_interval = (has_class | self.present) & self.low.isfinite()
        if bool(has_interval.any()):
            covered = (is_inside & has_interval).sum(1)
            intervals = has_interval.sum(1).double().masked_fill(~has_interval.any(1), torch.nan)
            metrics["coverage"] = covered / intervals
        candidates = Candidates.of_rows("does the client hold examples of this class?", inferred, has_class)
        answers = Quantities(
            inferred=inferred,
            true=shares,
            grid=1 / examples,
            rescored=lambda posterior_shares: _posterior(posterior_shares, examples)._scored(counts),
        )
        return Scores(
            metrics,
            torch.full((len(counts),), counts.shape[1]),
            has_class.sum(1),
            profiles=torch.stack([shares, inferred, self.low.double(), self.high.double()], dim=2),
            candidates=candidates,
            answers=answers,
        )


def _posterior(posterior_shares: Tensor, examples: Tensor) -> CompositionEstimate:
    """Estimate of shares ``(V, K)`` of any sign; a class is present if its share is that of half an example or more."""
    shares = posterior_shares.clamp(min=0)
    shares = shares / shares.sum(1, keepdim=True).clamp(min=1e-12)
    no_interval = torch.full_like(shares, torch.nan)
    present = shares * examples[:, None] >= 0.5
    return CompositionEstimate(proportions=shares, low=no_interval, high=no_interval, present=present)
