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


@dataclass(frozen=True)
class Sums:
    """Sums ``rows = coefficients @ table[chosen]`` of unknown vectors of a table.

    Attributes:
        rows: ``(R, d)`` sums, float64.
        table: ``(K, d)`` vectors, float32 or float64.
        error: Frobenius norm of the error of `rows` that is to be expected.
    """

    rows: Tensor
    table: Tensor
    error: float

    def projected(self, numbers: int) -> "Sums":
        """The same sums in so many random directions."""
        every = self.rows.shape[1]
        draws = torch.randn(every, numbers, generator=generator_for(0, "directions"), dtype=torch.float64)
        directions, _ = torch.linalg.qr(draws)
        table = torch.cat([part @ directions.to(part) for part in torch.split(self.table, _AT_ONCE)])
        return Sums(self.rows @ directions, table, self.error * (numbers / every) ** 0.5)

    def without(self, chosen: Sequence[int]) -> Tensor:
        """``(R, d)`` rows without their part in the span of chosen vectors."""
        if not chosen:
            return self.rows
        basis, _ = torch.linalg.qr(self.table[list(chosen)].double().T)
        left: Tensor = self.rows - self.rows @ basis @ basis.T
        return left

    def span_shares(self) -> Tensor:
        """``(K,)`` length of the part of each vector in the row space, over its length; 0 if that is everything."""
        basis = _basis(self.rows, self.error)
        if len(basis) > self.rows.shape[1] - MARGIN:
            return torch.zeros(len(self.table), dtype=torch.float64)
        shares: Tensor = _inside(self.table, [basis])[0].sqrt() / self.table.norm(dim=1).double().clamp(min=1e-300)
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


def pursue(systems: Sequence[Sums], most: int) -> Pursuit:
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
        Davies and Eldar, "Rank Awareness in Joint Sparse Recovery", IEEE Transactions on Information Theory 2012,
        arXiv:1004.4529, Algorithm 3 (RA-ORMP).
    """
    numbers = min(system.rows.shape[1] for system in systems)
    if numbers > _FEW:
        found = _pursuit(systems, _choose([system.projected(_FEW) for system in systems], min(most, _FEW - MARGIN)))
        if found.explained:
            return found
    return _pursuit(systems, _choose(systems, most))


def _pursuit(systems: Sequence[Sums], chosen: list[int]) -> Pursuit:
    return Pursuit(
        chosen=torch.tensor(chosen, dtype=torch.int64),
        left=_left(systems, [system.without(chosen) for system in systems]),
        strength=_strengths(systems, chosen),
        numbers=min(system.rows.shape[1] for system in systems),
    )


def _choose(systems: Sequence[Sums], most: int) -> list[int]:
    residuals = [system.rows.clone() for system in systems]
    lengths = [system.table.norm(dim=1).double().square() for system in systems]
    norms = [length.clone() for length in lengths]
    spans = [system.rows.new_zeros(0, system.rows.shape[1]) for system in systems]
    chosen = list[int]()
    numbers = min(system.rows.shape[1] for system in systems)
    while _left(systems, residuals) > 1 and len(chosen) < min(most, numbers):
        shares, chance = torch.zeros_like(norms[0]), 0.0
        for number, (system, residual) in enumerate(zip(systems, residuals, strict=True)):
            basis, norm, length = _basis(residual, system.error), norms[number], lengths[number]
            # One pass over the table for both: it can be larger than any cache.
            inside, gone = _inside(system.table, [basis, spans[number][len(chosen) - 1 :]])
            norm -= gone
            chance = max(chance, _best_by_chance(len(basis), system.rows.shape[1] - len(chosen), len(norm)))
            visible = norm > 1e-3 * length  # what is left of a vector that the chosen ones explain is rounding
            shares = torch.maximum(shares, torch.where(visible, inside / norm.clamp(min=1e-300), 0.0))
        shares[chosen] = -1
        best = int(shares.argmax())
        if float(shares[best]) <= chance or chance >= 1:
            break
        chosen.append(best)
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
    return float(beta.isf(1 - 0.5 ** (1 / vectors), rank / 2, (numbers - rank) / 2))


def _left(systems: Sequence[Sums], residuals: Sequence[Tensor]) -> float:
    """Norm of what is unexplained over the error, of the system in which it is largest."""
    return max(float(left.norm()) / max(one.error, 1e-300) for one, left in zip(systems, residuals, strict=True))


def _strengths(systems: Sequence[Sums], chosen: Sequence[int]) -> Tensor:
    """``(k,)`` norm of the coefficients of each chosen vector over the standard error that the error gives them."""
    found = torch.zeros(len(chosen), dtype=torch.float64)
    for system in systems if chosen else ():
        own = system.table[list(chosen)].double()
        inverse = torch.linalg.pinv(own)  # (d, k)
        coefficients = (system.rows @ inverse).norm(dim=0)
        noise = system.error / system.rows.shape[1] ** 0.5 * inverse.norm(dim=0)
        found = torch.maximum(found, coefficients / (3 * noise).clamp(min=1e-300))
    return found


def _inside(table: Tensor, bases: Sequence[Tensor]) -> list[Tensor]:
    """``(K,)`` squared lengths of the part of each vector of a table in the space of each orthonormal basis."""
    along = table @ torch.cat(list(bases)).to(table).T
    return [part.double().square().sum(1) for part in along.tensor_split([len(bases[0])], dim=1)]


def _basis(rows: Tensor, error: float) -> Tensor:
    """``(r, d)`` orthonormal basis of the row space, of directions above the error."""
    values, basis = row_space(rows)
    least = max(_FLAT * float(values[:1].sum()), error / max(rows.shape[0], 1) ** 0.5)
    found: Tensor = basis[values > least]
    return found
