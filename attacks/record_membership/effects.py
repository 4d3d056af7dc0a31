"""Effects of candidates: their gradients at places on a path, sketched, with inner products in a given precision."""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from fedleak.attacks.record_membership.joint_fit import Basis
from fedleak.attacks.record_membership.pool import ServerPool, in_type
from fedleak.client.engine.local_hyperparameters import LocalTraining

_COLUMNS = 4096
"""Numbers whose products are added at a time."""
_BYTES = 2**29
"""Memory for the gradients of all candidates."""
WeightedModels = list[tuple[Mapping[str, Tensor], float]]
"""Models on a path, with weights that add to 1."""


class Sketch:
    """Random sums, each number with a random sign in one of them; the identity if there are few enough numbers.

    The standard deviation of independent noise changes by a `factor`.
    """

    def __init__(self, numbers: int, size: int, generator: torch.Generator) -> None:
        self.size = min(numbers, size)
        self.factor = 1.0
        self._numbers: Tensor | slice = slice(None)
        self._sum_of_number = self._sign = None
        if numbers > size:
            # Every sum has equally many numbers, to within one.
            self._sum_of_number = torch.randperm(numbers, generator=generator) % size
            self._sign = torch.randint(2, (numbers,), generator=generator).float() * 2 - 1
            # A sum of n / k independent numbers.
            self.factor = (numbers / size) ** 0.5

    def part(self, start: int, end: int) -> "Sketch":
        """The sketch without the sums before `start` and from `end` on."""
        if end - start == self.size:
            return self
        part = copy.copy(self)
        part.size = end - start
        if self._sum_of_number is None or self._sign is None:
            part._numbers = slice(start, end)
        else:
            is_inside = (self._sum_of_number >= start) & (self._sum_of_number < end)
            part._numbers = is_inside.nonzero().flatten()
            part._sum_of_number = self._sum_of_number[part._numbers] - start
            part._sign = self._sign[part._numbers]
        return part

    def of(self, values: Tensor) -> Tensor:
        """``(B, D)`` -> ``(B, size)``."""
        numbers = values[:, self._numbers]
        if self._sum_of_number is None or self._sign is None:
            return numbers
        sums = values.new_zeros(len(values), self.size)
        return sums.index_add_(1, self._sum_of_number, numbers * self._sign)


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
        [Kingma15], algorithm 1.
    """

    local: LocalTraining
    batch: int
    steps: int

    def mean_square(self, parts: Iterable[tuple[Tensor, Tensor]], count: int) -> Tensor:
        """``(D,)`` mean square of each number of the gradient of random batches of candidates.

        Args:
            parts: gradients of the candidates, see `ServerPool.gradients`.
            count: number of candidates.
        """
        mean: Tensor | float = 0.0
        square: Tensor | float = 0.0
        for _, gradients in parts:
            mean = mean + gradients.sum(0, dtype=torch.float64) / count
            square = square + gradients.double().square().sum(0) / count
        mean, square = torch.as_tensor(mean), torch.as_tensor(square)
        # The mean of B independent gradients has the squared mean, and a B-th of their variance.
        variance = (square - mean.square()).clamp(min=0)
        return mean.square() + variance / self.batch

    def factors(self, squares: Sequence[Tensor]) -> list[Tensor]:
        """``(D,)`` factors at places that divide the steps evenly, of the mean squares there; 0 where nothing moves."""
        beta_1, beta_2 = self.local.betas
        step = torch.arange(self.steps, dtype=torch.float64)
        steps_ago = step[:, None] - step
        # Weights of the gradients of all steps s in the running means at step t, (t, s), with Adam's correction of
        # the first steps: beta^(t - s), over their sum.
        of_gradients = torch.where(steps_ago >= 0, beta_1 ** steps_ago.clamp(min=0), 0)
        of_gradients = of_gradients / of_gradients.sum(1, keepdim=True)
        of_squares = torch.where(steps_ago >= 0, beta_2 ** steps_ago.clamp(min=0), 0)
        of_squares = of_squares / of_squares.sum(1, keepdim=True)
        # Which place of the path stands for each step, (t, P), and the mean over the steps of each place.
        number_of_place = (step * len(squares) / self.steps).long()
        place_of_step = torch.nn.functional.one_hot(number_of_place, len(squares)).double()
        mean_over_steps = (place_of_step / place_of_step.sum(0)).T
        squares_at_places = torch.stack(list(squares))
        is_moved = squares_at_places.sum(0) > 0
        # sqrt(v_t) + eps at each place, then sum_t m_ts / (sqrt(v_t) + eps) for the steps s of each place.
        running_squares = mean_over_steps @ of_squares @ place_of_step @ squares_at_places
        roots = (running_squares + self.local.eps_root).sqrt() + self.local.eps
        return list((mean_over_steps @ of_gradients.T @ place_of_step @ (1 / roots)) * is_moved)


@dataclass(frozen=True)
class Place:
    """A model on a path.

    Attributes:
        model: the model.
        scale: ``(D,)`` factor of each number of a gradient there; None for 1.
        gradients: positions ``(B,)`` and gradients ``(B, D)`` of the candidates there, if they are known already.
    """

    model: Mapping[str, Tensor]
    scale: Tensor | None = None
    gradients: Sequence[tuple[Tensor, Tensor]] | None = None


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

    pool: ServerPool
    names: tuple[str, ...]
    sketch: Sketch
    dtype: torch.dtype
    precision: torch.dtype
    adam: AdamScales | None = None

    def of_model(self, place: Place) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields positions ``(B,)`` and sketched gradients ``(B, size)`` of candidates at a place."""
        for part, gradients in place.gradients or self._at(place.model):
            yield part, self.sketch.of(gradients if place.scale is None else gradients * place.scale)

    def _at(self, model: Mapping[str, Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Positions ``(B,)`` and gradients ``(B, D)`` of candidates at a model."""
        return self.pool.gradients(in_type(model, self.dtype), self.names)

    def with_steps(self, steps: int) -> Self:
        """The same for a client with so many steps of Adam."""
        return self if self.adam is None else replace(self, adam=replace(self.adam, steps=steps))

    def passes(self, models: WeightedModels) -> int:
        """Number of gradients of each candidate for the effects at some models."""
        if self.adam is None or self._remembers(models):
            return len(models)
        return 2 * len(models)

    def _remembers(self, models: WeightedModels) -> bool:
        """Whether memory holds the gradients of all candidates at some models."""
        model, _ = models[0]
        width = sum(model[name].numel() for name in self.names)
        return len(models) * len(self.pool) * width * self.dtype.itemsize <= _BYTES

    def places(self, models: WeightedModels) -> list[Place]:
        """Some models with the factors by which Adam scales gradients there.

        Factors take the gradients at all places, which are remembered where memory holds them: each is a pass through
        the network and back.
        """
        if self.adam is None:
            return [Place(model) for model, _ in models]
        fits_in_memory = self._remembers(models)
        remembered: list[list[tuple[Tensor, Tensor]]] = []
        squares = []
        for model, _ in models:
            parts: Iterable[tuple[Tensor, Tensor]] = self._at(model)
            if fits_in_memory:
                remembered.append(list(parts))
                parts = remembered[-1]
            squares.append(self.adam.mean_square(parts, len(self.pool)))
        factors = [factor.to(self.dtype) for factor in self.adam.factors(squares)]
        places = []
        for number, (model, _) in enumerate(models):
            gradients = remembered[number] if fits_in_memory else None
            places.append(Place(model, factors[number], gradients))
        return places

    def apart(self, models: WeightedModels, updates: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Inner products of the mean gradients at some models with weights.

        Returns:
            ``(M, M)`` with each other; ``(M, V)`` with ``updates (V, size)``; and for each model but the last, ``(M,
            M)`` of the deviations there, in the rows, with the means.
        """
        count = len(self.pool)
        places = self.places(models)
        gram = torch.zeros(count, count, dtype=self.precision)
        products = torch.zeros(count, len(updates), dtype=self.precision)
        deviation_products = [torch.zeros(count, count, dtype=self.dtype) for _ in models[:-1]]
        for columns, part in self._blocks(len(models)):
            gradients = [part.gradients(place) for place in places]
            # The mean takes the memory of the last model's gradients; the deviations take that of the others.
            _, last_weight = models[-1]
            mean = gradients.pop().mul_(last_weight)
            for gradient, (_, weight) in zip(gradients, models, strict=False):
                mean.add_(gradient, alpha=weight)
            for total, gradient in zip(deviation_products, gradients, strict=True):
                _add_products(total, gradient.sub_(mean), mean)
            _add_gram(gram, mean)
            _add_products(products, mean, updates[:, columns])
        return gram, products, deviation_products

    def along(self, models: WeightedModels, updates: Tensor) -> tuple[Tensor, Basis]:
        """Inner products ``(M, V)`` of the mean gradients at some models with weights and of updates ``(V, size)``.

        Also returns the basis of the mean gradients.
        """
        count = len(self.pool)
        places = self.places(models)
        gram = torch.zeros(count, count, dtype=self.precision)
        products = torch.zeros(len(updates), count, dtype=self.dtype)
        for columns, part in self._blocks(1):
            mean = torch.zeros(count, part.sketch.size, dtype=self.dtype)
            for place, (_, weight) in zip(places, models, strict=True):
                for rows, sums in part.of_model(place):
                    mean[rows] += weight * sums
            _add_gram(gram, mean)
            for client_products, update in zip(products, updates[:, columns], strict=True):
                client_products += mean @ update
        return products.T, Basis.of(gram)

    def gradients(self, place: Place) -> Tensor:
        """``(M, size)`` sketched gradients at a place."""
        return torch.cat([sums for _, sums in self.of_model(place)])

    def _blocks(self, models: int) -> Iterator[tuple[slice, Self]]:
        """The effects with some of the sums, and which these are: gradients at all models have bounded memory."""
        size = self.sketch.size
        columns_in_memory = max(1, _BYTES // (len(self.pool) * models * self.dtype.itemsize))
        # As few blocks as fit, of equal width, in whole chunks of `_COLUMNS`, so that sums are added in one order.
        blocks = -(-size // max(columns_in_memory, _COLUMNS))
        width = -(-size // blocks // _COLUMNS) * _COLUMNS
        for start in range(0, size, width):
            end = min(start + width, size)
            yield slice(start, end), replace(self, sketch=self.sketch.part(start, end))


def _add_products(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Adds inner products of rows ``(M, D)`` and ``(B, D)`` to ``(M, B)``, by chunks of numbers in its precision."""
    left_chunks = torch.split(left, _COLUMNS, dim=1)
    right_chunks = torch.split(right, _COLUMNS, dim=1)
    for left_chunk, right_chunk in zip(left_chunks, right_chunks, strict=True):
        total.addmm_(left_chunk.to(total.dtype), right_chunk.to(total.dtype).T)


def _add_gram(total: Tensor, effects: Tensor) -> None:
    """Adds inner products of effects ``(M, D)`` to ``(M, M)``: blocks on and above the diagonal, and their mirrors."""
    quarter = max(1, -(-len(effects) // 4))
    for part in torch.split(torch.arange(len(effects)), quarter):
        start, end = int(part[0]), int(part[-1]) + 1
        _add_products(total[start:end, start:], effects[start:end], effects[start:])
        total[start:, start:end] = total[start:end, start:].T
