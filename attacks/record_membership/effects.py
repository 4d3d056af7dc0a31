"""Effects of candidates: their gradients at places on a path, sketched, with inner products in a given precision."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from attacks.record_membership.joint_fit import Basis
from attacks.record_membership.pool import Pool, in_type
from client.engine.local_hyperparameters import LocalTraining

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
class AdamScales:
    """By how much Adam scales each number of the gradient at places of a path, in parts of its learning rate.

    Step t divides the running mean of the gradients by the root of that of their squares, so the gradient of step s
    adds to the update with the factor ``sum_{t >= s} m_ts / (sqrt(v_t) + eps)``, where ``m_ts`` is its weight in the
    mean. The squares of a batch's gradients are expected ones, of random batches of candidates.

    Attributes:
        local: Adam's options.
        batch: examples in a batch.
        steps: number of steps.

    References:
        D. P. Kingma and J. Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015, algorithm 1.
    """

    local: LocalTraining
    batch: int
    steps: int

    def mean_square(self, pool: Pool, model: Mapping[str, Tensor], names: tuple[str, ...]) -> Tensor:
        """``(D,)`` mean square of each number of the gradient of random batches of candidates."""
        width, count = sum(model[name].numel() for name in names), len(pool)
        mean, square = (torch.zeros(width, dtype=torch.float64) for _ in range(2))
        for _, gradients in pool.gradients(model, names):
            mean += gradients.sum(0, dtype=torch.float64) / count
            square += gradients.double().square().sum(0) / count
        return mean.square() + (square - mean.square()).clamp(min=0) / self.batch

    def factors(self, squares: Sequence[Tensor]) -> list[Tensor]:
        """``(D,)`` factors at places that divide the steps evenly, of the mean squares there; 0 where nothing moves."""
        first, second = self.local.betas
        step = torch.arange(self.steps, dtype=torch.float64)
        ago = step[:, None] - step
        place = torch.nn.functional.one_hot((step * len(squares) / self.steps).long(), len(squares)).double()
        weights = [torch.where(ago >= 0, beta ** ago.clamp(min=0), 0) for beta in (first, second)]
        means, seconds = (own / own.sum(1, keepdim=True) for own in weights)
        together = torch.stack(list(squares))
        moved = together.sum(0) > 0
        of_place = place / place.sum(0)
        roots = ((of_place.T @ seconds @ place @ together) + self.local.eps_root).sqrt() + self.local.eps
        return list((of_place.T @ means.T @ place @ (1 / roots)) * moved)


@dataclass(frozen=True)
class Effects:
    """Gradients of all candidates of a pool, sketched, and their Gram matrix, each in a precision of its own.

    Attributes:
        pool: the candidates.
        names: parameters whose gradients count.
        sketch: sketch of the gradients.
        dtype: of the gradients.
        precision: of their inner products.
        adam: how Adam scales gradients; None for SGD.
    """

    pool: Pool
    names: tuple[str, ...]
    sketch: Sketch
    dtype: torch.dtype
    precision: torch.dtype
    adam: AdamScales | None = None

    def of_model(self, model: Mapping[str, Tensor], scale: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields positions ``(B,)`` and sketched gradients ``(B, size)`` of candidates at a model."""
        for part, gradients in self.pool.gradients(in_type(model, self.dtype), self.names):
            yield part, self.sketch.of(gradients if scale is None else gradients.mul_(scale))

    def with_steps(self, steps: int) -> Self:
        """The same for a client with so many steps of Adam."""
        return self if self.adam is None else replace(self, adam=replace(self.adam, steps=steps))

    def scales(self, places: Places) -> list[Tensor] | list[None]:
        """Factor of each number of a gradient ``(D,)`` at some places; None for 1."""
        if self.adam is None:
            return [None] * len(places)
        models = [in_type(model, self.dtype) for model, _ in places]
        squares = [self.adam.mean_square(self.pool, model, self.names) for model in models]
        return [own.to(self.dtype) for own in self.adam.factors(squares)]

    def apart(self, places: Places) -> tuple[Tensor, list[Tensor]]:
        """``(M, D)`` mean gradients at some models with weights, and the deviations from them at all but the last."""
        found = []
        for (model, _), scale in zip(places, self.scales(places), strict=True):
            found.append(torch.cat([sums for _, sums in self.of_model(model, scale)]))
        mean = found.pop().mul_(places[-1][1])
        for own, (_, weight) in zip(found, places, strict=False):
            mean.add_(own, alpha=weight)
        return mean, [own.sub_(mean) for own in found]

    def along(self, places: Places) -> tuple[Tensor, Basis]:
        """``(M, D)`` mean gradients at some models with weights, and the basis of their inner products."""
        total = torch.zeros(())
        for (model, weight), scale in zip(places, self.scales(places), strict=True):
            for part, sums in self.of_model(model, scale):
                if not total.dim():  # in place, as all candidates' gradients are large
                    total = sums.new_zeros(len(self.pool), sums.shape[1])
                total[part] += weight * sums
        return total, Basis.of(gram_matrix(total, self.precision))


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
