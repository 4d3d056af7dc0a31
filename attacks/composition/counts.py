"""Whole class counts: their estimate, and the nearest whole numbers to a least-squares solution."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.composition.base import CompositionAttack, certain
from attacks.composition.estimates import CompositionEstimate
from attacks.composition.simulation import whole_counts
from attacks.estimates import Detail, Scores, check_tensor
from protocol.metric_table import Metric
from protocol.view import View


@dataclass(frozen=True, kw_only=True)
class CountEstimate(CompositionEstimate):
    """The number of a client's examples of each class.

    Attributes:
        counts: ``(V, K)`` int64, at least 0; they may sum to another number than the client's examples.
        deviation: ``(V, K)`` predicted standard deviation of the counts before rounding, NaN for no prediction.
        assumes: what the attack assumes of the clients against what is known of them, for reports; empty for nothing.

    References:
        Ma, Sun, Cui, Li, Guo and Liu, "Instance-wise Batch Label Restoration via Gradients in Federated Learning", ICLR
        2023, whose LnAcc, IRec and LeAcc are the first three metrics.
    """

    metrics = (
        *CompositionEstimate.metrics,
        Metric("exact-classes", "Exact classes is the share of classes whose count is right.", span=(0.0, 1.0)),
        Metric("instance-recall", "Instance recall is the share of examples whose label is inferred.", span=(0.0, 1.0)),
        Metric("class-existence", "Class existence is the share of classes rightly called present or absent."),
        Metric(
            "predicted-exact-classes",
            "Predicted exact classes is the share of classes that the attack expects to count right under its"
            " assumptions, without the truth.",
            leak=False,
            predicts="exact-classes",
        ),
    )
    counts: Tensor
    deviation: Tensor
    assumes: str = ""

    def check(self, view: View) -> None:
        super().check(view)
        check_tensor("counts", self.counts, tuple(self.proportions.shape), dtype=torch.int64)
        check_tensor("deviation", self.deviation, tuple(self.proportions.shape), dtype=torch.float64, finite=False)

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        scores = super().score(view, truth)
        true, found = truth["class_counts"].long(), self.counts
        metrics = {
            **scores.metrics,
            "exact-classes": (found == true).double().mean(1),
            "instance-recall": torch.minimum(found, true).sum(1) / true.sum(1).clamp(min=1).double(),
            "class-existence": ((found > 0) == (true > 0)).double().mean(1),
        }
        if bool(self.deviation.isfinite().any()):
            metrics["predicted-exact-classes"] = right_when_rounded(self.deviation).mean(1)
        details: list[Detail] = [{"clients": view.victims, "assumes": self.assumes}] if self.assumes else []
        return dataclasses.replace(scores, metrics=metrics, details=details)


class CountAttack(CompositionAttack):
    """Base class of attacks that infer how many examples of each class a client has."""

    estimates = CountEstimate

    def combine(self, estimates: Sequence[CompositionEstimate]) -> CountEstimate:
        """Mean over the rounds of the same clients, rounded."""
        own = [e for e in estimates if isinstance(e, CountEstimate)]
        mean = torch.stack([e.counts.double() for e in own]).mean(0)
        return count_estimate(mean.round().long(), torch.stack([e.deviation for e in own]).mean(0))


def count_estimate(counts: Tensor, deviation: Tensor | None = None, *, shares: Tensor | None = None) -> CountEstimate:
    """The estimate of ``counts (V, K)``.

    Args:
        counts: whole numbers, at least 0.
        deviation: ``(V, K)`` predicted standard deviation of the counts, which also gives intervals of 95 %.
        shares: ``(V, K)`` the shares, if they are not those of the counts.
    """
    held = counts.double()
    held = held.where(held.any(1, keepdim=True), 1.0) if shares is None else shares
    plain = certain(held, counts > 0)
    if deviation is None:
        return CountEstimate(**vars(plain), counts=counts, deviation=plain.low)
    # Whole numbers: an error of less than a half is none.
    total = counts.sum(1, keepdim=True).clamp(min=1)
    half = (1.96 * deviation).round() / total if shares is None else 1.96 * deviation / total
    low, high = (plain.proportions - half).clamp(min=0), (plain.proportions + half).clamp(max=1)
    return CountEstimate(**vars(plain) | {"low": low, "high": high}, counts=counts, deviation=deviation.double())


def right_when_rounded(deviation: Tensor) -> Tensor:
    """Probability that a normal error of some standard deviation is less than a half."""
    return torch.erf(0.5 / (deviation.clamp(min=1e-12) * 2**0.5))


def nearest_counts(precision: Tensor, target: Tensor, start: Tensor, sizes: Tensor) -> Tensor:
    """``(V, K)`` whole numbers n >= 0 with sums ``sizes (V,)`` that make ``n' A n - 2 n' b`` small.

    A is the symmetric ``precision (V, K, K)``, b the ``target (V, K)``. From the largest remainders of a real ``start
    (V, K)``, whose negative entries are taken for 0, best first: the example that most lowers the sum when it moves
    from one class to another does so, until none does.
    """
    shares = start.clamp(min=0)
    shares = shares.where(shares.any(1, keepdim=True), 1.0)
    counts = whole_counts(shares / shares.sum(1, keepdim=True), sizes).double()
    victims, classes = counts.shape
    own = torch.arange(victims)
    diagonal = precision.diagonal(dim1=1, dim2=2)
    pair = diagonal[:, :, None] + diagonal[:, None, :] - 2 * precision
    pair = pair.masked_fill(torch.eye(classes, dtype=torch.bool), torch.inf)
    for _ in range(int(sizes.max()) + 1):
        slope = 2 * ((precision @ counts[..., None]).squeeze(2) - target)
        change = (pair + slope[:, :, None] - slope[:, None, :]).masked_fill((counts < 1)[:, None, :], torch.inf)
        best, place = change.flatten(1).min(1)
        moves = best < -1e-9 * diagonal.amax(1)
        if not bool(moves.any()):
            break
        counts[own[moves], place[moves] // classes] += 1
        counts[own[moves], place[moves] % classes] -= 1
    return counts.long()
