"""Published inference of the set of labels in a batch, from the gradient of the last layer's weights."""

import abc
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

from fedleak.attacks.composition.counts import CountAttack, CountEstimate, count_estimate
from fedleak.client.last_layer import layer_change
from fedleak.core.largest_remainders import largest_remainders
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_SMALL = 1e-6
"""Singular values below this share of the largest are zero; float32 gradients are no more accurate."""


@dataclass(frozen=True, kw_only=True)
class LabelSet(CountAttack):
    """Base class of attacks that infer which classes a client has; their counts are equal."""

    threat_model = ThreatModel(
        sees="the update of the last layer's weights and how many examples the client reports",
        knows="the class of each row",
        needs=("deltas",),
    )

    def estimate(self, view: RoundView, *, generator: torch.Generator) -> CountEstimate:
        present = self.present(-layer_change(view).weight.double(), view.example_counts)
        # Equal shares of the classes present; of all classes if none is, whose counts are then zero.
        shares = present.double().where(present.any(1, keepdim=True), 1.0)
        counts = largest_remainders(shares / shares.sum(1, keepdim=True), view.example_counts)
        return count_estimate(counts * present, shares=shares)

    @abc.abstractmethod
    def present(self, gradient: Tensor, sizes: Tensor) -> Tensor:
        """``(V, K)`` bool, of ``gradient (V, K, F)`` up to a positive factor and ``sizes (V,)``."""


@dataclass(frozen=True, kw_only=True)
class IDLGLabels(LabelSet):
    """iDLG's rule for a batch: classes whose row of the gradient has a negative sum.

    The publication proves it for one example and non-negative features; the rule for a batch is that of later
    comparisons (LLG, iLRG).

    Threat model: passive server, one round.

    References:
        [Zhao20], section 3.1.

    Example:
        >>> import torch
        >>> from fedleak.attacks.composition import IDLGLabels
        >>> from fedleak.attacks.composition.toy import toy
        >>> view, truth = toy(each=4)
        >>> estimate = IDLGLabels()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["class-existence"].mean()), 2)
        1.0
    """

    name = "idlg-labels"
    references = ("Zhao20, section 3.1",)
    for_comparison = True  # gradinversion-labels or last-layer-counts is at least as good in all 70 cells

    def present(self, gradient: Tensor, sizes: Tensor) -> Tensor:
        return gradient.sum(2) < 0


@dataclass(frozen=True, kw_only=True)
class GradInversionLabels(LabelSet):
    """GradInversion's rule for a batch: classes whose row of the gradient has a negative entry.

    The publication takes the N smallest minima for N different labels; the rule for labels that repeat is that of later
    comparisons (iLRG).

    Threat model: passive server, one round.

    References:
        [Yin21], section 3.2.

    Example:
        >>> import torch
        >>> from fedleak.attacks.composition import GradInversionLabels
        >>> from fedleak.attacks.composition.toy import toy
        >>> view, truth = toy(each=4)
        >>> estimate = GradInversionLabels()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["class-existence"].mean()), 2)
        1.0
    """

    name = "gradinversion-labels"
    references = ("Yin21, section 3.2",)

    def present(self, gradient: Tensor, sizes: Tensor) -> Tensor:
        return (gradient < 0).any(2)


@dataclass(frozen=True, kw_only=True)
class RLG(LabelSet):
    """Revealing labels from gradients, RLG: classes that a hyperplane separates from all others.

    The gradient is a sum of N matrices ``(p - y) h'``, so its columns span that of the vectors p - y, of which only the
    entry of the label is negative. A class is present if some vector of the span has a positive entry there and no
    other: one linear program per client and class. If the rank is K - 1, the span holds every vector of sum zero, and
    all classes are called present.

    Threat model: passive server, one round.

    References:
        [Dang21], Algorithm 1.

    Example:
        >>> import torch
        >>> from fedleak.attacks.composition import RLG
        >>> from fedleak.attacks.composition.toy import toy
        >>> view, truth = toy(each=2)
        >>> estimate = RLG()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["class-existence"].mean()), 2)
        1.0
    """

    name = "rlg"
    references = ("Dang21, Algorithm 1",)
    cost = "a linear program per victim and class"

    def present(self, gradient: Tensor, sizes: Tensor) -> Tensor:
        columns, values, _ = torch.linalg.svd(gradient, full_matrices=False)
        # The rank is at most the number of examples, each of which adds one matrix of rank 1.
        rank = torch.minimum((values > _SMALL * values[:, :1]).sum(1), sizes)
        present = []
        for span, client_rank in zip(columns.numpy(), rank, strict=True):
            present.append([separable(span[:, :client_rank], label) for label in range(len(span))])
        return torch.tensor(present, dtype=torch.bool).reshape(gradient.shape[:2])


def separable(span: "np.ndarray[tuple[int, int], np.dtype[np.float64]]", row: int) -> bool:
    """Whether a vector in the column space of ``span (K, r)`` is positive in one row and nowhere else."""
    if not span.shape[1]:
        return False
    # Feasibility of `span w`: at least 1 in the row (any positive vector can be scaled so), at most 0 in all others.
    signs = np.ones(len(span))
    signs[row] = -1
    bound = np.zeros(len(span))
    bound[row] = -1
    program = linprog(np.zeros(span.shape[1]), signs[:, None] * span, bound, bounds=(None, None))
    return bool(program.status == 0)  # solved, so feasible
