"""Numbers of rows that similar rows stand for, so that the sums of all trees fit."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.trees.tree_boxes import TreeBoxes
from fedleak.attacks.trees.tree_messages import SentTree
from fedleak.client.trees import TreesAlgorithm

STEPS = 1500
"""Steps of the descent."""
EXACT = 0.03
"""Rows by which the numbers of the first tree may be missed, before they are rounded to whole ones."""
PRECISION = 10.0
"""Rows by which the sums of a leaf of a later tree may be missed: known rows are not the client's own."""
LEAST_HESSIAN = 1e-6
"""Mean Hessian below which a tree says nothing: the log odds before it are beyond all rows."""
OTHER_CLASS = 0.1
"""Number of rows that a known row of the other class stands for beforehand, next to one of the same class."""


@dataclass(frozen=True)
class Candidates:
    """Rows of which a client may have some: known ones, once with each class.

    Attributes:
        rows: ``(K, F)`` float64.
        label: ``(K,)`` int64.
        leaf: ``(K,)`` int64 leaf of the first tree.
        prior: ``(K,)`` float64 number of rows that each stands for by the first tree alone.
    """

    rows: Tensor
    label: Tensor
    leaf: Tensor
    prior: Tensor


@dataclass(frozen=True)
class _Sums:
    """Linear equations ``A x = b`` with errors of about one, for numbers of rows x of the candidates."""

    factors: Tensor
    targets: Tensor


def sums_of_trees(candidates: Candidates, trees: list[SentTree], algorithm: TreesAlgorithm, is_masked: bool) -> _Sums:
    """Equations of the later trees of a client, in units of the precision of a few rows.

    A candidate is a point, so that its leaf in each tree and its log odds are known. The weight of a leaf relates the
    sums of gradients and of Hessians, ``G + w (H + lambda) = 0``; where H is not masked, it is known itself.
    """
    later = trees[min(1, len(trees) - 1)]
    log_odds = torch.tensor(later.base_score, dtype=torch.float64).logit()
    margin = log_odds + trees[0].boxes.threshold[candidates.leaf]
    factors, targets = [torch.zeros(0, len(candidates.label), dtype=torch.float64)], [torch.zeros(0)]
    for sent in trees[1:]:
        for other in sent.others:
            margin = margin + other.threshold[other.leaf_of(candidates.rows)]
        probability = margin.sigmoid()
        gradient = probability - candidates.label
        hessian = probability * (1 - probability)
        leaves = sent.boxes.is_leaf.nonzero().flatten()
        leaf = sent.boxes.leaf_of(candidates.rows)
        shares = candidates.prior / candidates.prior.sum()
        # What one row changes of each sum.
        of_gradient = float((shares @ gradient.square()).sqrt())
        of_hessian = float(shares @ hessian)
        if of_hessian >= LEAST_HESSIAN:
            is_in = (leaf == leaves[:, None]).double()
            weight = sent.boxes.threshold[leaves, None] / algorithm.eta
            factors.append(is_in * (gradient + weight * hessian) / (PRECISION * of_gradient))
            targets.append(-weight[:, 0] * algorithm.reg_lambda / (PRECISION * of_gradient))
            if not is_masked:
                factors.append(is_in * hessian / (PRECISION * of_hessian))
                targets.append(sent.boxes.hessian[leaves] / (PRECISION * of_hessian))
        margin = margin + sent.boxes.threshold[leaf]
    return _Sums(torch.cat(factors), torch.cat([target.double() for target in targets]))


def fitted_numbers(candidates: Candidates, first: TreeBoxes, counts: Tensor, sums: _Sums) -> Tensor:
    """``(K,)`` float64 numbers of rows of at least 0 that fit the sums and stay near to those of the first tree.

    Args:
        candidates: the rows.
        first: the first tree.
        counts: ``(N, 2)`` numbers of rows of each class in its nodes.
        sums: equations of the later trees.
    """
    leaves = first.is_leaf.nonzero().flatten()
    is_in = candidates.leaf == leaves[:, None]
    of_classes = [(is_in & (candidates.label == label)).double() / EXACT for label in (0, 1)]
    factors = torch.cat([sums.factors, *of_classes])
    targets = torch.cat([sums.targets, counts[leaves, 0] / EXACT, counts[leaves, 1] / EXACT])
    prior = candidates.prior
    # With x = prior + sqrt(prior) z, a number varies about what it is beforehand as counts do.
    spread = prior.clamp(min=1e-6).sqrt()
    scaled = factors * spread
    offset = targets - factors @ prior
    # The largest curvature bounds the step.
    step = 1 / (float(torch.linalg.eigvalsh(scaled @ scaled.T)[-1]) + 1)
    # Accelerated projected gradients of |A x - b|^2 + |z|^2 with x >= 0.
    z = torch.zeros_like(prior)
    ahead, momentum = z, 1.0
    for _ in range(STEPS):
        slope = scaled.T @ (scaled @ ahead - offset) + ahead
        following = (ahead - step * slope).maximum(-prior / spread)
        next_momentum = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead = following + (momentum - 1) / next_momentum * (following - z)
        z, momentum = following, next_momentum
    return prior + spread * z


def whole_numbers(numbers: Tensor, total: int, generator: torch.Generator) -> Tensor:
    """``(K,)`` int64 numbers with a sum, each one of the two next to its share, with the share as their mean.

    Systematic sampling: rows stand at equal distances on a line on which candidates in random order take up their
    shares, so that those with equal shares are as likely.

    Args:
        numbers: ``(K,)`` shares of at least 0, up to a factor.
        total: the sum.
        generator: draws the order and where the first row stands.

    Example:
        >>> whole_numbers(torch.tensor([3.0, 1.0, 0.0]), 4, torch.Generator().manual_seed(0)).tolist()
        [3, 1, 0]
    """
    shares = numbers.clamp(min=0)
    if float(shares.sum()) == 0:
        shares = torch.ones_like(shares)
    order = torch.randperm(len(shares), generator=generator)
    ends = (shares[order] / shares.sum() * total).cumsum(0)
    start = float(torch.rand(1, generator=generator))
    # Rows stand at start, start + 1, ...; the last end has all of them also after rounding.
    rows_before = (ends - start).ceil().clamp(min=0, max=total)
    rows_before[-1] = total
    whole = torch.zeros(len(shares), dtype=torch.int64)
    whole[order] = rows_before.diff(prepend=torch.zeros(1)).long()
    return whole
