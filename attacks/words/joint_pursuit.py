"""Recovery of few vectors of a large table from several sums of them, which may be fewer than the vectors."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from scipy.stats import beta
from torch import Tensor

from fedleak.attacks.linear_algebra import row_space
from fedleak.core.seeding import generator_for

MARGIN = 2
"""Numbers of a vector that must be left over: as many conditions decide that the choice is no accident."""
_FEW = 1024
"""Numbers of a vector in which the vectors are chosen first, because time and memory grow with them."""
_AT_ONCE = 8192
"""Vectors that are projected together."""
_FLAT = 1e-6
"""Singular values of a residual, relative to the largest, that count as zero."""
_VISIBLE = 1e-3
"""Part of a vector's squared length outside the span of the chosen ones, below which that is rounding."""
_CLEAR = 3.0
"""Standard errors of a coefficient above which it is no noise."""


@dataclass(frozen=True)
class VectorSums:
    """Sums ``rows = coefficients @ table[chosen]`` of unknown vectors of a table.

    Attributes:
        rows: ``(R, d)`` sums, float64.
        table: ``(K, d)`` vectors, float32 or float64.
        error: Frobenius norm of the error of `rows` that is to be expected.
    """

    rows: Tensor
    table: Tensor
    error: float

    def projected(self, numbers: int) -> "VectorSums":
        """The same sums in so many random directions."""
        all_numbers = self.rows.shape[1]
        draws = torch.randn(all_numbers, numbers, generator=generator_for(0, "directions"), dtype=torch.float64)
        directions, _ = torch.linalg.qr(draws)
        table = torch.cat([part @ directions.to(part) for part in torch.split(self.table, _AT_ONCE)])
        # Of a white error, orthonormal directions have their part of the variance.
        return VectorSums(self.rows @ directions, table, self.error * (numbers / all_numbers) ** 0.5)

    def without(self, chosen: Sequence[int]) -> Tensor:
        """``(R, d)`` rows without their part in the span of chosen vectors."""
        if not chosen:
            return self.rows
        basis, _ = torch.linalg.qr(self.table[list(chosen)].double().T)
        residual: Tensor = self.rows - self.rows @ basis @ basis.T
        return residual

    def span_shares(self) -> Tensor:
        """``(K,)`` length of the part of each vector in the row space, over its length; 0 if that is everything."""
        basis = _basis(self.rows, self.error)
        # A row space of nearly all directions has every vector in it.
        if len(basis) > self.rows.shape[1] - MARGIN:
            return torch.zeros(len(self.table), dtype=torch.float64)
        lengths = self.table.norm(dim=1).double().clamp(min=1e-300)
        shares: Tensor = _inside(self.table, [basis])[0].sqrt() / lengths
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
    """

    chosen: Tensor
    left: float
    strength: Tensor
    numbers: int

    @property
    def explained(self) -> bool:
        """Whether fewer vectors than they have numbers leave no more than the error."""
        return len(self.chosen) < self.numbers - MARGIN and self.left <= 1

    @property
    def present(self) -> Tensor:
        """``(k',)`` chosen vectors, without those that explain no more than noise would if all is explained."""
        return self.chosen[self.strength > 1] if self.explained else self.chosen


def pursue(systems: Sequence[VectorSums], most: int) -> Pursuit:
    """Chooses vectors one after another until they explain the sums: rank-aware order-recursive matching pursuit.

    Each step takes the vector that, without its part along the chosen ones, lies most in the row space of what is
    unexplained. The row space, instead of the rows themselves, lets sums of R rows identify more than R vectors: in
    general position up to ``d - 1`` of them are the only ones that explain the sums; d explain anything. Of several
    systems, which share the choice but have tables of their own, the largest share decides, since a vector may be
    missing in some of them. It ends where the best vector lies no further in than the best of a table of random vectors
    would.

    Vectors of many numbers are projected to `_FEW` random directions first; a choice in them that explains the sums in
    all directions counts. Otherwise the search starts again in all.

    Args:
        systems: sums of vectors at the same places of their tables.
        most: largest number of vectors.

    References:
        [Davies12], Algorithm 3 (RA-ORMP).
    """
    numbers = min(system.rows.shape[1] for system in systems)
    if numbers > _FEW:
        projected = [system.projected(_FEW) for system in systems]
        chosen = _choose(projected, min(most, _FEW - MARGIN))
        # The choice is made in few directions and judged in all.
        pursuit = _pursuit(systems, chosen)
        if pursuit.explained:
            return pursuit
    return _pursuit(systems, _choose(systems, most))


def _pursuit(systems: Sequence[VectorSums], chosen: list[int]) -> Pursuit:
    return Pursuit(
        chosen=torch.tensor(chosen, dtype=torch.int64),
        left=_relative_residual(systems, [system.without(chosen) for system in systems]),
        strength=_strengths(systems, chosen),
        numbers=min(system.rows.shape[1] for system in systems),
    )


def _choose(systems: Sequence[VectorSums], most: int) -> list[int]:
    residuals = [system.rows.clone() for system in systems]
    squared_lengths = [system.table.norm(dim=1).double().square() for system in systems]
    # Squared length of the part of each vector that is orthogonal to the chosen ones.
    squares_outside = [squares.clone() for squares in squared_lengths]
    # Orthonormal basis of the chosen ones: a row for each.
    spans = [system.rows.new_zeros(0, system.rows.shape[1]) for system in systems]
    chosen = list[int]()
    numbers = min(system.rows.shape[1] for system in systems)
    while _relative_residual(systems, residuals) > 1 and len(chosen) < min(most, numbers):
        shares = torch.zeros_like(squares_outside[0])
        chance = 0.0
        for number, (system, residual) in enumerate(zip(systems, residuals, strict=True)):
            basis = _basis(residual, system.error)
            outside = squares_outside[number]
            # One pass over the table for both: it can be larger than any cache.
            newest_direction = spans[number][len(chosen) - 1 :]
            inside, gone = _inside(system.table, [basis, newest_direction])
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
            direction = system.table[best].double()
            for _ in range(2):  # twice, against the loss of orthogonality
                direction = direction - spans[number].T @ (spans[number] @ direction)
            direction = direction / direction.norm().clamp(min=1e-300)
            spans[number] = torch.cat([spans[number], direction[None]])
            residuals[number] = residuals[number] - torch.outer(residuals[number] @ direction, direction)
    return chosen


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
        vectors = system.table[list(chosen)].double()
        inverse = torch.linalg.pinv(vectors)  # (d, k)
        # The coefficients of least squares, C = X T^+, and what an error of equal size in all numbers makes of them.
        coefficients = (system.rows @ inverse).norm(dim=0)
        noise = system.error / system.rows.shape[1] ** 0.5 * inverse.norm(dim=0)
        strengths = torch.maximum(strengths, coefficients / (_CLEAR * noise).clamp(min=1e-300))
    return strengths


def _inside(table: Tensor, bases: Sequence[Tensor]) -> list[Tensor]:
    """``(K,)`` squared lengths of the part of each vector of a table in the space of each orthonormal basis."""
    along = table @ torch.cat(list(bases)).to(table).T
    along_each_basis = along.tensor_split([len(bases[0])], dim=1)
    return [part.double().square().sum(1) for part in along_each_basis]


def _basis(rows: Tensor, error: float) -> Tensor:
    """``(r, d)`` orthonormal basis of the row space, of directions above the error."""
    singular_values, basis = row_space(rows)
    # The error is spread over the rows, so that each direction has its part; the sum is 0 where there are no rows.
    largest = float(singular_values[:1].sum())
    threshold = max(_FLAT * largest, error / max(rows.shape[0], 1) ** 0.5)
    above_error: Tensor = basis[singular_values > threshold]
    return above_error
