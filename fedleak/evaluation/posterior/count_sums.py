"""Sums over all vectors of whole counts with a given total, of products of one weight for each count."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def log_total(log_weights: Floats, totals: Ints) -> Floats:
    """``(V,)`` logarithm of the sum of ``prod_k w_k(n_k)`` over all counts n of each row with ``sum_k n_k = N``.

    The sum is the value at N of the convolution of the K weights. All terms are positive, so nothing cancels.

    Args:
        log_weights: ``(V, K, J)`` logarithms of the weights of the counts 0 to J - 1; minus infinity for none.
        totals: ``(V,)`` N, at most J - 1.
    """
    weights, scale = _scaled(log_weights)
    product = _unit(len(weights), weights.shape[2])
    log_scale = scale.sum(1)
    # The largest value is drawn out after each class, so that a product of many weights does not underflow.
    for number in range(weights.shape[1]):
        convolved = _convolved(product, weights[:, number])
        product, log_scale = _rescaled(convolved, log_scale)
    return _log_at(product, log_scale, totals)


def marginals(log_weights: Floats, totals: Ints) -> Floats:
    """``(V, K, J)`` probability of each count, where that of a vector of counts is proportional to its product.

    That of ``n_k = j`` is ``w_k(j)`` times the sum over all other counts with the total ``N - j``, which is the
    convolution of the weights before k with that of the weights after k.

    Args:
        log_weights: as in `log_total`.
        totals: ``(V,)`` N.
    """
    weights, _ = _scaled(log_weights)
    rows, classes, counts = weights.shape
    # Products of the weights after each class, the last class first.
    after = [_unit(rows, counts)]
    for number in range(classes - 1, 0, -1):
        after.append(_convolved(after[-1], weights[:, number], normalised=True))
    before = _unit(rows, counts)
    chances = np.zeros_like(weights)
    # What the other classes have together, N - j; no such counts exist where it is negative.
    rest = totals[:, None] - np.arange(counts)
    for number in range(classes):
        other_classes = _convolved(before, after[classes - 1 - number], normalised=True)
        of_rest = np.take_along_axis(other_classes, rest.clip(min=0), 1) * (rest >= 0)
        chances[:, number] = weights[:, number] * of_rest
        before = _convolved(before, weights[:, number], normalised=True)
    sums = chances.sum(2, keepdims=True)
    # Where no counts with this total have a weight in double precision, each class goes by its own weights.
    alone = weights / weights.sum(2, keepdims=True)
    return np.where(sums > 0, chances / np.where(sums > 0, sums, 1.0), alone)


def _unit(rows: int, counts: int) -> Floats:
    """The convolution of no weights: 1 at 0."""
    unit = np.zeros((rows, counts))
    unit[:, 0] = 1.0
    return unit


def _scaled(log_weights: Floats) -> tuple[Floats, Floats]:
    """Weights ``(V, K, J)`` with a largest one of 1, and the logarithms ``(V, K)`` of what they are divided by."""
    highest = log_weights.max(2)
    return np.exp(log_weights - highest[..., None]), highest


def _convolved(first: Floats, second: Floats, *, normalised: bool = False) -> Floats:
    """``(V, J)`` convolutions of the rows, cut to J values; with a largest value of 1 if `normalised`."""
    counts = first.shape[1]
    rows = []
    for first_row, second_row in zip(first, second, strict=True):
        rows.append(np.convolve(first_row, second_row)[:counts])
    product = np.stack(rows)
    if not normalised:
        return product
    return _rescaled(product, np.zeros(len(product)))[0]


def _rescaled(product: Floats, log_scale: Floats) -> tuple[Floats, Floats]:
    """The rows ``(V, J)`` with a largest value of 1, and the logarithms ``(V,)`` of what all were divided by."""
    highest = np.maximum(product.max(1), 1e-300)
    return product / highest[:, None], log_scale + np.log(highest)


def _log_at(product: Floats, log_scale: Floats, totals: Ints) -> Floats:
    """Logarithm of the product at the totals; an upper bound where double precision has none."""
    at_totals = np.take_along_axis(product, totals[:, None], 1)[:, 0]
    exact = np.log(np.maximum(at_totals, 1e-300)) + log_scale
    # What underflowed is below 1e-300 of the largest value.
    bound = log_scale + np.log(1e-300)
    return np.where(at_totals > 1e-300, exact, bound)
