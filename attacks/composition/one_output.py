"""Share of positives, or mean target, of clients whose network has one output: the estimates and their scores."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.attacks.applicability import without_one_output
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Detail, Estimate, Scores, check_tensor
from fedleak.core.metric import CORRELATION, POSITIVE, Metric
from fedleak.core.view import View

_TINY = 1e-30


@dataclass(frozen=True, kw_only=True)
class PositiveShare(Estimate):
    """The share of a client's examples that are positive, of a network with one logit.

    Attributes:
        shares: ``(V,)`` in [0, 1].
        assumes: what is assumed of the clients' steps; empty for nothing.
    """

    inferred = "what share of its examples is positive"
    truth = ("class_counts",)
    metrics: ClassVar[tuple[str | Metric, ...]] = (
        Metric(
            "share-error",
            "Share error is the L1 distance of the inferred share of positives and the true one.",
            lower_is_better=True,
            judged=True,
            span=(0.0, 1.0),
            words="is wrong by {} percentage points about the share of positive examples",
        ),
        Metric(
            "share-correlation",
            "Share correlation is that of inferred and true shares over the clients, the mean of their products.",
            span=CORRELATION,
        ),
    )
    shares: Tensor
    assumes: str = ""

    @classmethod
    def inapplicable(cls, view: View, truth: Collection[str]) -> str | None:
        return without_one_output(view, truth, binary=True)

    def check(self, view: View) -> None:
        check_tensor("shares", self.shares, (view.victims,), dtype=torch.float64)

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        counts = truth["class_counts"].double()
        if counts.shape[1] != 2:
            raise ViewError(f"expected counts of two classes, negatives and positives; got {counts.shape[1]}")
        return _scored(self.shares, counts[:, 1] / counts.sum(1), "share", view, self.assumes)


@dataclass(frozen=True, kw_only=True)
class TargetMean(Estimate):
    """The mean of a client's targets, of a network that learns a regression.

    Attributes:
        means: ``(V,)`` in the units of the targets.
        assumes: what is assumed of the clients' steps; empty for nothing.
    """

    inferred = "the mean of its targets"
    truth = ("target_mean",)
    metrics: ClassVar[tuple[str | Metric, ...]] = (
        Metric(
            "mean-error",
            "Mean error is the distance of the inferred mean target and the true one, in the targets' units.",
            lower_is_better=True,
            judged=True,
            words="is wrong by {} about the mean target, in the targets' unit",
            words_scale=1.0,
            span=POSITIVE,
        ),
        Metric(
            "mean-correlation",
            "Mean correlation is that of inferred and true means over the clients, the mean of their products.",
            span=CORRELATION,
        ),
    )
    means: Tensor
    assumes: str = ""

    @classmethod
    def inapplicable(cls, view: View, truth: Collection[str]) -> str | None:
        return without_one_output(view, truth, binary=False)

    def check(self, view: View) -> None:
        check_tensor("means", self.means, (view.victims,), dtype=torch.float64)

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        return _scored(self.means, truth["target_mean"].double(), "mean", view, self.assumes)


def _scored(inferred: Tensor, true: Tensor, name: str, view: View, assumes: str) -> Scores:
    """Scores of ``(V,)`` inferred and true numbers: the errors, and the correlation over the clients of the view."""
    # Standardised by all clients of the view, whose mean product is the correlation.
    inferred_z = _standardised(inferred)
    true_z = _standardised(true)
    products = torch.full_like(inferred, torch.nan)
    if len(true) > 1 and bool(inferred.std(correction=0) > 0) and bool(true.std(correction=0) > 0):
        products = inferred_z * true_z
    # A client changes the correlation r by z_x z_y - r (z_x^2 + z_y^2) / 2 over the number of clients (its influence).
    correlation = products.mean()
    influences = correlation + products - correlation * (inferred_z.square() + true_z.square()) / 2
    details: list[Detail] = []
    if assumes:
        details.append({"clients": view.victims, "assumes": assumes})
    metrics = {f"{name}-error": (inferred - true).abs(), f"{name}-correlation": products}
    return Scores(metrics, influences={f"{name}-correlation": influences}, details=details)


def _standardised(numbers: Tensor) -> Tensor:
    return (numbers - numbers.mean()) / numbers.std(correction=0).clamp(min=_TINY)
