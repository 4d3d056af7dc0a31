"""Whether the words that explain the sums of an update are the only ones that do."""

import math
from collections.abc import Sequence

import torch
from scipy.special import betaln, gammaln
from torch import Tensor

from fedleak.attacks.words.joint_pursuit import Pursuit, VectorSums

_CLEAR = 10.0
"""Strength of the weakest word above which no further word is expected to be lost in the rounding."""
_DISTINGUISHED = 4.0
"""Norm, in errors, that another word in the place of one must leave: both explanations are off by one error at most, so
that two are proof; twice as much, because other words may be exchanged at the same time."""
_ACCIDENT = 1e-9
"""Expected number of sets of random vectors that explain the sums, up to which an explanation is no accident."""


def are_only_words(systems: Sequence[VectorSums], pursuit: Pursuit, tokens: Tensor) -> bool:
    """Whether the chosen vectors are certain to be those of the words in the sums.

    The sums are ``X = C T + E``, with the vectors T of the words, unknown coefficients C and an error E of a norm of at
    most `VectorSums.error`, which is that of rounding. Words are certain if all of this holds:

    1. The chosen ones explain the sums up to the error, and are fewer than the numbers of a vector.
    2. Each has a coefficient well above the error, so that no weaker one is expected to be lost in it.
    3. No other word can take the place of one of them (`norm_after_swap`): vectors that two words share, or nearly so,
       make neither certain.
    4. As many random vectors would not explain the sums (`log_accidents`): a few rows are explained by many sets of
       vectors, if these are nearly as many as their numbers.

    An error of the sums that is larger than `VectorSums.error`, as of an optimizer other than declared, dropout, or
    numbers that were rounded to fewer digits, leaves more unexplained than the error and fails at 1.

    Args:
        systems: sums of the same choice.
        pursuit: the choice.
        tokens: ``(K,)`` word of each vector of the tables.
    """
    return (
        len(pursuit.chosen) > 0
        and pursuit.explained
        and float(pursuit.strength.min()) > _CLEAR
        and log_accidents(systems, len(pursuit.chosen)) < math.log(_ACCIDENT)
        and no_word_can_be_another(systems, pursuit.chosen, tokens)
    )


def no_word_can_be_another(systems: Sequence[VectorSums], chosen: Tensor, tokens: Tensor) -> bool:
    """Whether the sums distinguish every chosen vector from those of all other words, see `norm_after_swap`."""
    return bool((norm_after_swap(systems, chosen, tokens) > _DISTINGUISHED).all())


def norm_after_swap(systems: Sequence[VectorSums], chosen: Tensor, tokens: Tensor) -> Tensor:
    """``(k,)`` least norm, in errors, that stays unexplained if another word takes the place of each chosen one.

    Say the vectors S explain the sums, ``X = C T_S + R``, and the truth has v in the place of w, ``X = C' T_S' + E``.
    The difference, without its part along v and S but w, is ``C_w`` times the distance of w from the span of those, and
    its norm is at most ``|E| + |R|``. With a, the part of w that is orthogonal to S but w, that distance is ``|a|``
    times the sine of the angle between a and the same part of v.

    Args:
        systems: sums; a swap must leave little in all of them, so the largest counts.
        chosen: ``(k,)`` places in the tables.
        tokens: ``(K,)`` word of each vector: another vector of the same word is no other word.
    """
    largest = torch.zeros(len(chosen), dtype=torch.float64)
    if not len(chosen):
        return largest
    for system in systems:
        vectors = system.vectors[chosen].double()
        # Column w of the inverse is a / |a|^2.
        inverse = torch.linalg.pinv(vectors)
        orthogonal_norm = 1 / inverse.norm(dim=0).clamp(min=1e-300)  # |a|
        directions = inverse * orthogonal_norm
        basis, _ = torch.linalg.qr(vectors.T)
        least_squared_sine = torch.ones(len(chosen), dtype=torch.float64)
        for rows, candidates in system.vectors.parts():
            outside = (candidates - candidates @ basis @ basis.T).square().sum(1, keepdim=True)
            along = (candidates @ directions).square()
            # The squared sine; a word that S has already, or that adds no direction, takes no place.
            squared_sine = outside / (outside + along).clamp(min=1e-300)
            is_same = tokens[rows][:, None] == tokens[chosen]
            is_chosen = torch.isin(rows, chosen)[:, None]
            squared_sine = squared_sine.masked_fill(is_same | is_chosen, 1.0)
            least_squared_sine = torch.minimum(least_squared_sine, squared_sine.amin(0))
        # |C_w| times |a| times the sine.
        coefficients = (system.rows @ inverse).norm(dim=0)
        unexplained = coefficients * orthogonal_norm * least_squared_sine.sqrt()
        largest = torch.maximum(largest, unexplained / max(system.error, 1e-300))
    return largest


def log_accidents(systems: Sequence[VectorSums], count: int) -> float:
    """Logarithm of the expected number of sets of `count` vectors that would explain the sums if they were random.

    There are ``binomial(K, k)`` sets. The share of a vector of d numbers that k random ones leave has a square of the
    law Beta((d - k) / 2, k / 2), which is below x with a probability of at most ``x^a / (a B(a, b))``. It is asked of
    every direction of the rows above the error.
    """
    vectors = len(systems[0].vectors)
    # Logarithm of binomial(K, k).
    log_expected = float(gammaln(vectors + 1) - gammaln(count + 1) - gammaln(vectors - count + 1))
    for system in systems:
        half_free = (system.rows.shape[1] - count) / 2  # a
        half_taken = count / 2  # b
        if half_free <= 0:
            return math.inf
        # Of each direction of the rows, an explanation leaves the error at most: a squared share of x.
        singular_values = torch.linalg.svdvals(system.rows)
        above_error = singular_values[singular_values > max(system.error, 1e-300)]
        squared_shares = (system.error / above_error).clamp(min=1e-300).square()
        # Logarithm of the bound x^a / (a B(a, b)), which is a probability and so at most 1.
        log_bounds = half_free * squared_shares.log() - math.log(half_free) - float(betaln(half_free, half_taken))
        log_expected += float(log_bounds.clamp(max=0).sum())
    return log_expected
