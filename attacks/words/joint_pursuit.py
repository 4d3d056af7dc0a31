"""Recovery of few vectors of a large table from several sums of them, which may be fewer than the vectors."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from scipy.stats import beta, chi2
from torch import Tensor

from fedleak.attacks.linear_algebra import row_space
from fedleak.client.word_vectors import StoredVectors, WordVectors, word_vectors
from fedleak.core.seeding import generator_for

MARGIN = 2
"""Numbers of a vector that must be left over: as many conditions decide that the choice is no accident."""
_FEW = 1024
"""Numbers of a vector in which the vectors are chosen first, because time and memory grow with them."""
_FLAT = 1e-6
"""Singular values of a residual, relative to the largest, that count as zero."""
_VISIBLE = 1e-4
"""Part of a vector's squared length outside the span of the chosen ones, below which that is rounding."""
_CLEAR = 3.0
"""Standard errors of a coefficient above which it is no noise."""
_FALSE = 1e-2
"""Expected number of vectors that noise alone adds in one pass over the table."""
_UNEVEN = 4.0
"""Variance of the error along one vector, over that of its mean direction: rounding is larger where numbers are."""
_PASSES = 10
"""Passes in which vectors are added and dropped, if the choice has not settled before."""


@dataclass(frozen=True)
class VectorSums:
    """Sums ``rows = coefficients @ table[chosen]`` of unknown vectors of a table.

    Attributes:
        rows: ``(R, d)`` sums, float64.
        table: ``(K, d)`` vectors.
        error: Frobenius norm that the error of `rows` does not exceed: what is certain rests on it.
        least_error: Frobenius norm of the error that is there in any case, e.g. of one rounding, down to which vectors
            are looked for; None for `error`. A bound that is some times too large would hide the weak ones.
    """

    rows: Tensor
    table: WordVectors | Tensor
    error: float
    least_error: float | None = None

    @cached_property
    def vectors(self) -> WordVectors:
        """The table."""
        return word_vectors(self.table)

    @property
    def deviation(self) -> float:
        """Standard deviation of each number of the rows that is there in any case."""
        least_error = self.error if self.least_error is None else self.least_error
        return max(least_error, 1e-300) / math.sqrt(max(self.rows.numel(), 1))

    def projected(self, numbers: int) -> "VectorSums":
        """The same sums in so many random directions."""
        all_numbers = self.rows.shape[1]
        draws = torch.randn(all_numbers, numbers, generator=generator_for(0, "directions"), dtype=torch.float64)
        directions, _ = torch.linalg.qr(draws)
        table = torch.empty(len(self.vectors), numbers)
        for candidates, vectors in self.vectors.parts():
            table[candidates] = (vectors @ directions).float()
        # Of a white error, orthonormal directions have their part of the variance.
        part = (numbers / all_numbers) ** 0.5
        least_error = None if self.least_error is None else self.least_error * part
        return VectorSums(self.rows @ directions, StoredVectors(table), self.error * part, least_error)

    def without(self, chosen: Sequence[int]) -> Tensor:
        """``(R, d)`` rows without their part in the span of chosen vectors."""
        if not chosen:
            return self.rows
        basis, _ = torch.linalg.qr(self.vectors[torch.tensor(chosen)].double().T)
        residual: Tensor = self.rows - self.rows @ basis @ basis.T
        return residual

    def span_shares(self) -> Tensor:
        """``(K,)`` length of the part of each vector in the row space, over its length; 0 if that is everything."""
        basis = _basis(self.rows, self.error)
        # A row space of nearly all directions has every vector in it.
        if len(basis) > self.rows.shape[1] - MARGIN:
            return torch.zeros(len(self.vectors), dtype=torch.float64)
        squares = self.vectors.squares_along([basis])[0]
        shares: Tensor = (squares / self.vectors.squared_lengths.clamp(min=1e-300)).sqrt()
        return shares


@dataclass(frozen=True)
class Pursuit:
    """Vectors found by `pursue`.

    Attributes:
        chosen: ``(k,)`` places in the table, in the order of their choice.
        left: norm of what the chosen ones leave unexplained, over the error.
        strength: ``(k,)`` norm of the coefficients of each, over that of the weakest that is not noise; below 1 for a
            vector that explains no more than noise would.
        numbers: least number d of a vector, of all tables.
        settled: whether the choice was checked vector by vector against the noise that is left, see `_settled`.
    """

    chosen: Tensor
    left: float
    strength: Tensor
    numbers: int
    settled: bool = False

    @property
    def explained(self) -> bool:
        """Whether fewer vectors than they have numbers leave no more than the error."""
        return len(self.chosen) < self.numbers - MARGIN and self.left <= 1

    @property
    def present(self) -> Tensor:
        """``(k',)`` chosen vectors, without those that explain no more than noise would if all is explained."""
        if self.settled or not self.explained:
            return self.chosen
        return self.chosen[self.strength > 1]


def pursue(systems: Sequence[VectorSums], most: int, report: Callable[[float], None] | None = None) -> Pursuit:
    """Chooses vectors one after another until they explain the sums: rank-aware order-recursive matching pursuit.

    Each step takes the vector that, without its part along the chosen ones, lies most in the row space of what is
    unexplained. The row space, instead of the rows themselves, lets sums of R rows identify more than R vectors: in
    general position up to ``d - 1`` of them are the only ones that explain the sums; d explain anything. Of several
    systems, which share the choice but have tables of their own, the largest share decides, since a vector may be
    missing in some of them. It ends where what is unexplained is as small as `VectorSums.least_error`, or the best
    vector lies no further in than the best of a table of random vectors would: noise has no direction, so that a
    coherent table is no nearer to it than a random one.

    A choice that explains the sums is then settled, see `_settled`: a vector that was taken for a similar one goes
    again, and weak ones that were overlooked come in. Of sums of which nothing is above the bound of their error, none
    is chosen.

    Vectors of many numbers are projected to `_FEW` random directions first; a choice in them that explains the sums in
    all directions counts. Otherwise the search starts again in all.

    Args:
        systems: sums of vectors at the same places of their tables.
        most: largest number of vectors.
        report: is called with the share of the work that is done, in logarithms of what is unexplained.

    References:
        [Davies12], Algorithm 3 (RA-ORMP).
    """
    # Sums of which nothing is above the bound of their error may be all error, and say nothing.
    if not any(len(_basis(system.rows, system.error)) for system in systems):
        return _pursuit(systems, [])
    numbers = min(system.rows.shape[1] for system in systems)
    if numbers > _FEW and all(isinstance(system.vectors, StoredVectors) for system in systems):
        projected = [system.projected(_FEW) for system in systems]
        chosen = _choose(projected, min(most, _FEW - MARGIN), report)
        # The choice is made in few directions and judged in all.
        pursuit = _pursuit(systems, chosen)
        if pursuit.explained:
            return _settled(systems, pursuit, most)
    pursuit = _pursuit(systems, _choose(systems, most, report))
    if pursuit.explained:
        return _settled(systems, pursuit, most)
    return pursuit


def _pursuit(systems: Sequence[VectorSums], chosen: list[int], *, settled: bool = False) -> Pursuit:
    return Pursuit(
        chosen=torch.tensor(chosen, dtype=torch.int64),
        left=_relative_residual(systems, [system.without(chosen) for system in systems]),
        strength=_strengths(systems, chosen),
        numbers=min(system.rows.shape[1] for system in systems),
        settled=settled,
    )


def _settled(systems: Sequence[VectorSums], pursuit: Pursuit, most: int) -> Pursuit:
    """A choice that explains the sums, of which vectors are dropped and to which others are added until none is due.

    What is left then is noise, whose size it shows. The sum of squares by which a further vector reduces it, over its
    variance, has the law of chi-square with R degrees of freedom for noise alone; so has that by which a chosen one
    reduces it beside the others. A vector is there if noise alone would not reach as far in the whole table, with a
    margin for errors of uneven size.
    """
    chosen = pursuit.chosen.tolist()
    count = len(systems[0].vectors)
    enough = _UNEVEN * float(chi2.isf(_FALSE / count, sum(system.rows.shape[0] for system in systems)))
    most = min(most, pursuit.numbers - MARGIN)
    for _ in range(_PASSES):
        before = set(chosen)
        if chosen:
            reduction = _reduction_by_chosen(systems, chosen)
            chosen = [vector for vector, worth in zip(chosen, reduction.tolist(), strict=True) if worth > enough]
        # One at a time, because similar vectors reduce the same.
        while len(chosen) < most:
            reduction = _reduction_by_others(systems, chosen)
            best = int(reduction.argmax())
            if float(reduction[best]) <= enough:
                break
            chosen.append(best)
        if set(chosen) == before:
            break
    settled = _pursuit(systems, chosen, settled=True)
    return settled if settled.explained else pursuit


def _variance_left(system: VectorSums, residual: Tensor, chosen: int) -> float:
    """Variance of each number of what so many vectors leave, at least the one that is there in any case."""
    free_numbers = residual.shape[0] * max(residual.shape[1] - chosen, 1)
    return max(float(residual.square().sum()) / free_numbers, system.deviation**2)


def _reduction_by_chosen(systems: Sequence[VectorSums], chosen: Sequence[int]) -> Tensor:
    """``(k,)`` reduction of the sum of squares by each chosen vector beside the others, over the variance left."""
    reduction = torch.zeros(len(chosen), dtype=torch.float64)
    for system in systems:
        variance = _variance_left(system, system.without(chosen), len(chosen))
        inverse = torch.linalg.pinv(system.vectors[torch.tensor(chosen)].double())
        # |C_w|^2 over the squared norm of w's column of the inverse, which is 1 over its length outside the others.
        coefficients = (system.rows @ inverse).square().sum(0)
        reduction += coefficients / inverse.square().sum(0).clamp(min=1e-300) / variance
    return reduction


def _reduction_by_others(systems: Sequence[VectorSums], chosen: Sequence[int]) -> Tensor:
    """``(K,)`` the same by one more vector; 0 for one that the chosen ones explain."""
    reduction = torch.zeros(len(systems[0].vectors), dtype=torch.float64)
    for system in systems:
        residual = system.without(chosen)
        basis = residual.new_zeros(0, residual.shape[1])
        if chosen:
            basis = torch.linalg.qr(system.vectors[torch.tensor(chosen)].double().T)[0].T
        along_residual, taken = system.vectors.squares_along([residual, basis])
        squared_lengths = system.vectors.squared_lengths
        outside = squared_lengths - taken
        # Of a vector that the chosen ones explain, only rounding is outside, whose direction says nothing.
        visible = outside > _VISIBLE * squared_lengths
        by_each = along_residual / outside.clamp(min=1e-300)
        reduction += torch.where(visible, by_each, 0.0) / _variance_left(system, residual, len(chosen))
    reduction[list(chosen)] = 0
    return reduction


def _choose(systems: Sequence[VectorSums], most: int, report: Callable[[float], None] | None = None) -> list[int]:
    residuals = [system.rows.clone() for system in systems]
    squared_lengths = [system.vectors.squared_lengths for system in systems]
    # Squared length of the part of each vector that is orthogonal to the chosen ones.
    squares_outside = [squares.clone() for squares in squared_lengths]
    # Orthonormal basis of the chosen ones: a row for each.
    spans = [system.rows.new_zeros(0, system.rows.shape[1]) for system in systems]
    chosen = list[int]()
    numbers = min(system.rows.shape[1] for system in systems)
    while _is_more_left(systems, residuals, len(chosen)) and len(chosen) < min(most, numbers):
        shares = torch.zeros_like(squares_outside[0])
        chance = 0.0
        for number, (system, residual) in enumerate(zip(systems, residuals, strict=True)):
            basis = _basis(residual, system.deviation * math.sqrt(residual.numel()))
            outside = squares_outside[number]
            # One pass over the table for both: it can be larger than any cache.
            newest_direction = spans[number][len(chosen) - 1 :]
            inside, gone = system.vectors.squares_along([basis, newest_direction])
            outside -= gone
            free_numbers = system.rows.shape[1] - len(chosen)
            chance = max(chance, _best_by_chance(len(basis), free_numbers, len(outside)))
            # Of a vector that the chosen ones explain, only rounding is outside, whose direction says nothing.
            visible = outside > _VISIBLE * squared_lengths[number]
            shares = torch.maximum(shares, torch.where(visible, inside / outside.clamp(min=1e-300), 0.0))
        # The vector that lies most in the row space of the residual, unless a random one would lie as far in.
        shares[chosen] = -1
        best = int(shares.argmax())
        if float(shares[best]) <= chance or chance >= 1:
            break
        chosen.append(best)
        # Its part orthogonal to the chosen ones (Gram and Schmidt) is taken out of the residuals.
        for number, system in enumerate(systems):
            direction = system.vectors[torch.tensor([best])][0].double()
            for _ in range(2):  # twice, against the loss of orthogonality
                direction = direction - spans[number].T @ (spans[number] @ direction)
            direction = direction / direction.norm().clamp(min=1e-300)
            spans[number] = torch.cat([spans[number], direction[None]])
            residuals[number] = residuals[number] - torch.outer(residuals[number] @ direction, direction)
        if report is not None:
            report(_share_explained(systems, residuals))
    return chosen


def _is_more_left(systems: Sequence[VectorSums], residuals: Sequence[Tensor], chosen: int) -> bool:
    """Whether more is left than the error that is there in any case has outside of so many vectors."""
    for system, residual in zip(systems, residuals, strict=True):
        free_numbers = residual.shape[0] * max(residual.shape[1] - chosen, 0)
        if float(residual.square().sum()) > system.deviation**2 * free_numbers:
            return True
    return False


def _share_explained(systems: Sequence[VectorSums], residuals: Sequence[Tensor]) -> float:
    """How far what is unexplained has come from the rows to the error, in logarithms, in the system that is last."""
    shares = [1.0]
    for system, residual in zip(systems, residuals, strict=True):
        least_error = system.deviation * math.sqrt(residual.numel())
        way = math.log(max(float(system.rows.norm()) / least_error, 1.0 + _FLAT))
        shares.append(1 - math.log(max(float(residual.norm()) / least_error, 1.0)) / way)
    return max(min(shares), 0.0)


def _best_by_chance(rank: int, numbers: int, vectors: int) -> float:
    """Median of the largest squared share in a space of some rank, of random vectors of so many numbers."""
    if not rank or rank >= numbers:
        return float(rank > 0)
    # One share has the law Beta(rank / 2, (numbers - rank) / 2); the largest of K is below its median if all are,
    # each with a probability of 0.5^(1 / K).
    return float(beta.isf(1 - 0.5 ** (1 / vectors), rank / 2, (numbers - rank) / 2))


def _relative_residual(systems: Sequence[VectorSums], residuals: Sequence[Tensor]) -> float:
    """Norm of what is unexplained over the error, of the system in which it is largest."""
    ratios = []
    for system, residual in zip(systems, residuals, strict=True):
        ratios.append(float(residual.norm()) / max(system.error, 1e-300))
    return max(ratios)


def _strengths(systems: Sequence[VectorSums], chosen: Sequence[int]) -> Tensor:
    """``(k,)`` norm of the coefficients of each chosen vector over the standard error that the error gives them."""
    strengths = torch.zeros(len(chosen), dtype=torch.float64)
    if not chosen:
        return strengths
    for system in systems:
        vectors = system.vectors[torch.tensor(chosen)].double()
        inverse = torch.linalg.pinv(vectors)  # (d, k)
        # The coefficients of least squares, C = X T^+, and what an error of equal size in all numbers makes of them.
        coefficients = (system.rows @ inverse).norm(dim=0)
        noise = system.error / system.rows.shape[1] ** 0.5 * inverse.norm(dim=0)
        strengths = torch.maximum(strengths, coefficients / (_CLEAR * noise).clamp(min=1e-300))
    return strengths


def _basis(rows: Tensor, error: float) -> Tensor:
    """``(r, d)`` orthonormal basis of the row space, of directions above the error."""
    singular_values, basis = row_space(rows)
    # The error is spread over the rows, so that each direction has its part; the sum is 0 where there are no rows.
    largest = float(singular_values[:1].sum())
    threshold = max(_FLAT * largest, error / max(rows.shape[0], 1) ** 0.5)
    above_error: Tensor = basis[singular_values > threshold]
    return above_error
