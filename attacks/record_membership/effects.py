"""Effects of candidates: their gradients at places on a path, sketched, with inner products in a given precision."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.record_membership.joint_fit import Basis
from attacks.record_membership.pool import Pool, in_type

Places = list[tuple[Mapping[str, Tensor], float]]
"""Models on a path, with weights that add to 1."""


class Sketch:
    """Random sums, each number with a random sign in one of them; the identity if there are few enough numbers.

    The standard deviation of independent noise changes by a `factor`.
    """

    def __init__(self, numbers: int, size: int, generator: torch.Generator) -> None:
        self.size = size
        self.factor, self._place = 1.0, None
        if numbers > size:
            self._place = torch.randperm(numbers, generator=generator) % size
            self._sign = torch.randint(2, (numbers,), generator=generator).float() * 2 - 1
            self.factor = (numbers / size) ** 0.5

    def of(self, values: Tensor) -> Tensor:
        """``(B, D)`` -> ``(B, size)``."""
        if self._place is None:
            return values
        return values.new_zeros(len(values), self.size).index_add_(1, self._place, values * self._sign)


@dataclass(frozen=True)
class Effects:
    """Gradients of all candidates of a pool, sketched, and their Gram matrix, each in a precision of its own.

    Attributes:
        pool: the candidates.
        names: parameters whose gradients count.
        sketch: sketch of the gradients.
        dtype: of the gradients.
        precision: of their inner products.
        scale: ``(D,)`` factor of each number of a gradient, None for 1.
    """

    pool: Pool
    names: tuple[str, ...]
    sketch: Sketch
    dtype: torch.dtype
    precision: torch.dtype
    scale: Tensor | None = None

    def of_model(self, model: Mapping[str, Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields positions ``(B,)`` and sketched gradients ``(B, size)`` of candidates at a model."""
        for part, gradients in self.pool.gradients(in_type(model, self.dtype), self.names):
            yield part, self.sketch.of(gradients if self.scale is None else gradients.mul_(self.scale))

    def apart(self, places: Places) -> tuple[Tensor, list[Tensor]]:
        """``(M, D)`` mean gradients at some models with weights, and the deviations from them at all but the last."""
        found = []
        for model, _ in places:
            found.append(torch.cat([sums for _, sums in self.of_model(model)]))
        mean = found.pop().mul_(places[-1][1])
        for own, (_, weight) in zip(found, places, strict=False):
            mean.add_(own, alpha=weight)
        return mean, [own.sub_(mean) for own in found]

    def along(self, places: Places) -> tuple[Tensor, Basis]:
        """``(M, D)`` mean gradients at some models with weights, and the basis of their inner products."""
        total = torch.zeros(())
        for model, weight in places:
            for part, sums in self.of_model(model):
                if not total.dim():  # in place, as all candidates' gradients are large
                    total = sums.new_zeros(len(self.pool), sums.shape[1])
                total[part] += weight * sums
        return total, Basis.of(gram_matrix(total, self.precision))


def adam_scale(pool: Pool, model: Mapping[str, Tensor], names: tuple[str, ...], batch: int) -> Tensor:
    """``(D,)`` one over the root of the mean square of a number of the gradient of random batches of candidates.

    Adam divides each number of the gradient by about that, so that the sum of its steps is about linear in the
    gradients of the records, with these factors.
    """
    width, count = sum(model[name].numel() for name in names), len(pool)
    mean, square = (torch.zeros(width, dtype=torch.float64) for _ in range(2))
    for _, gradients in pool.gradients(model, names):
        mean += gradients.sum(0, dtype=torch.float64) / count
        square += gradients.double().square().sum(0) / count
    size = mean.square() + (square - mean.square()).clamp(min=0) / batch
    moved = size > 0
    return size.where(moved, 1).rsqrt() * moved


def inner_products(left: Tensor, right: Tensor, precision: torch.dtype) -> Tensor:
    """``(M, B)`` inner products of rows ``(M, D)`` and ``(B, D)``, by chunks of numbers in the given precision."""
    total = torch.zeros(len(left), len(right), dtype=precision)
    for own, other in zip(torch.split(left, 4096, dim=1), torch.split(right, 4096, dim=1), strict=True):
        total.addmm_(own.to(precision), other.to(precision).T)
    return total


def gram_matrix(effects: Tensor, precision: torch.dtype) -> Tensor:
    """``(M, M)`` inner products of effects ``(M, D)``: blocks on and above the diagonal, and their mirror images."""
    total = torch.zeros(len(effects), len(effects), dtype=precision)
    rows = torch.split(torch.arange(len(effects)), max(1, -(-len(effects) // 4)))
    for part in rows:
        start, end = int(part[0]), int(part[-1]) + 1
        total[start:end, start:] = inner_products(effects[start:end], effects[start:], precision)
        total[start:, start:end] = total[start:end, start:].T
    return total
