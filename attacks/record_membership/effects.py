"""Effects of candidates: their gradients at places on a path, sketched, with inner products in a given precision."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from fedleak.attacks.record_membership.joint_fit import Basis
from fedleak.attacks.record_membership.pool import Pool, in_type
from fedleak.client.engine.local_hyperparameters import LocalTraining

_COLUMNS = 4096
"""Numbers whose products are added at a time."""
_BYTES = 2**29
"""Memory for the gradients of all candidates."""
Places = list[tuple[Mapping[str, Tensor], float]]
"""Models on a path, with weights that add to 1."""


class Sketch:
    """Random sums, each number with a random sign in one of them; the identity if there are few enough numbers.

    The standard deviation of independent noise changes by a `factor`.
    """

    def __init__(self, numbers: int, size: int, generator: torch.Generator) -> None:
        self.size, self.factor = min(numbers, size), 1.0
        self._numbers: Tensor | slice = slice(None)
        self._place = self._sign = None
        if numbers > size:
            self._place = torch.randperm(numbers, generator=generator) % size
            self._sign = torch.randint(2, (numbers,), generator=generator).float() * 2 - 1
            self.factor = (numbers / size) ** 0.5

    def part(self, start: int, end: int) -> "Sketch":
        """The sketch without the sums before `start` and from `end` on."""
        if end - start == self.size:
            return self
        part = copy.copy(self)
        part.size = end - start
        if self._place is None or self._sign is None:
            part._numbers = slice(start, end)
        else:
            part._numbers = ((self._place >= start) & (self._place < end)).nonzero().flatten()
            part._place, part._sign = self._place[part._numbers] - start, self._sign[part._numbers]
        return part

    def of(self, values: Tensor) -> Tensor:
        """``(B, D)`` -> ``(B, size)``."""
        own = values[:, self._numbers]
        if self._place is None or self._sign is None:
            return own
        return values.new_zeros(len(values), self.size).index_add_(1, self._place, own * self._sign)


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

    def apart(self, places: Places, updates: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Inner products of the mean gradients at some models with weights.

        Returns:
            ``(M, M)`` with each other; ``(M, V)`` with ``updates (V, size)``; and for each model but the last, ``(M,
            M)`` of the deviations there, in the rows, with the means.
        """
        count, scales = len(self.pool), self.scales(places)
        gram, products = (torch.zeros(count, width, dtype=self.precision) for width in (count, len(updates)))
        inner = [torch.zeros(count, count, dtype=self.dtype) for _ in places[:-1]]
        for columns, part in self._blocks(len(places)):
            found = [part.gradients(model, scale) for (model, _), scale in zip(places, scales, strict=True)]
            mean = found.pop().mul_(places[-1][1])
            for own, (_, weight) in zip(found, places, strict=False):
                mean.add_(own, alpha=weight)
            for total, own in zip(inner, found, strict=True):
                _add_products(total, own.sub_(mean), mean)
            _add_gram(gram, mean)
            _add_products(products, mean, updates[:, columns])
        return gram, products, inner

    def along(self, places: Places, updates: Tensor) -> tuple[Tensor, Basis]:
        """Inner products ``(M, V)`` of the mean gradients at some models with weights and of updates ``(V, size)``.

        Also returns the basis of the mean gradients.
        """
        count, scales = len(self.pool), self.scales(places)
        gram = torch.zeros(count, count, dtype=self.precision)
        products = torch.zeros(len(updates), count, dtype=self.dtype)
        for columns, part in self._blocks(1):
            total = torch.zeros(count, part.sketch.size, dtype=self.dtype)
            for (model, weight), scale in zip(places, scales, strict=True):
                for rows, sums in part.of_model(model, scale):
                    total[rows] += weight * sums
            _add_gram(gram, total)
            for own, update in zip(products, updates[:, columns], strict=True):
                own += total @ update
        return products.T, Basis.of(gram)

    def gradients(self, model: Mapping[str, Tensor], scale: Tensor | None) -> Tensor:
        """``(M, size)`` sketched gradients at a model."""
        return torch.cat([sums for _, sums in self.of_model(model, scale)])

    def _blocks(self, places: int) -> Iterator[tuple[slice, Self]]:
        """The effects with some of the sums, and which these are: gradients at all places have bounded memory."""
        size = self.sketch.size
        each = max(1, _BYTES // (len(self.pool) * places * self.dtype.itemsize))
        width = -(-size // -(-size // max(each, _COLUMNS)) // _COLUMNS) * _COLUMNS
        for start in range(0, size, width):
            end = min(start + width, size)
            yield slice(start, end), replace(self, sketch=self.sketch.part(start, end))


def _add_products(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Adds inner products of rows ``(M, D)`` and ``(B, D)`` to ``(M, B)``, by chunks of numbers in its precision."""
    for own, other in zip(torch.split(left, _COLUMNS, dim=1), torch.split(right, _COLUMNS, dim=1), strict=True):
        total.addmm_(own.to(total.dtype), other.to(total.dtype).T)


def _add_gram(total: Tensor, effects: Tensor) -> None:
    """Adds inner products of effects ``(M, D)`` to ``(M, M)``: blocks on and above the diagonal, and their mirrors."""
    for part in torch.split(torch.arange(len(effects)), max(1, -(-len(effects) // 4))):
        start, end = int(part[0]), int(part[-1]) + 1
        _add_products(total[start:end, start:], effects[start:end], effects[start:])
        total[start:, start:end] = total[start:end, start:].T
