"""Features of single records from the update of a head on a frozen network."""

from collections.abc import Iterator

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.linear_layer import layer_errors
from fedleak.attacks.reconstruction.separate_matching import step_sizes
from fedleak.attacks.reconstruction.separated_features import Remaining, Separated, separate
from fedleak.attacks.reconstruction.sparse_vectors import sparse_vector
from fedleak.client.frozen_backbone import FrozenBackboneAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.progress import with_progress
from fedleak.core.view import RoundView

_LEAST = -1e-6
"""Smallest number of features that are called non-negative, for rounding."""
_CLEAR = 0.2
"""Errors of a class below this share of their median have no sure sign."""
_SAME = 1 - 1e-6
"""Cosine from which two columns are one."""
_INDEPENDENT = 1e-6
"""Part of a unit column outside of the span of others above which it adds a dimension."""


def head_features(view: RoundView, *, failures: int, generator: torch.Generator) -> list[Separated]:
    """What the head read of each record of each client, of one step, see `HeadFeatures`.

    Args:
        view: clients with a `FrozenBackboneAlgorithm`.
        failures: searches without a new record after which that of a client ends.
        generator: of the searches.

    Raises:
        ViewError: the clients make several or no plain steps, or change what they send.
    """
    algorithm = view.require(FrozenBackboneAlgorithm)
    rates = step_sizes(view)
    layer = first_layer(view)
    separated = []
    for victim in with_progress(range(view.victims)):
        model = {name: value[victim].double() for name, value in view.sent_models().items()}
        decay = algorithm.decay_change(model, view.example_counts[victim : victim + 1])
        # The mean gradient: the update without weight decay, over minus the learning rate.
        parts = []
        for name in (f"{layer}.weight", f"{layer}.bias"):
            without_decay = view.deltas[name][victim].double() - decay[name].reshape(model[name].shape)
            parts.append(without_decay / -rates[victim])
        weight, bias = parts
        search = HeadSearch(algorithm, model, layer, failures, generator)
        separated.append(
            separate(
                torch.cat([weight, bias[:, None]], dim=1),
                int(view.example_counts[victim]),
                search.errors,
                precision=torch.finfo(view.deltas[f"{layer}.weight"].dtype).eps,
                generator=generator,
                search=search,
            )
        )
    return separated


def first_layer(view: RoundView) -> str:
    """Name of the layer of the head that reads the features.

    Raises:
        ViewError: its update was not recorded.
    """
    name = next(name for name, value in view.model.items() if value.dim() > 1)
    layer = name.removesuffix(".weight")
    if name not in view.deltas or f"{layer}.bias" not in view.deltas:
        raise ViewError(f"expected the updates of {layer}.weight and {layer}.bias, got a recording without them")
    return layer


class HeadSearch:
    """Looks for features in what remains of an update, first by zeros of the features, then by silent neurons.

    Args:
        algorithm: of the clients.
        model: the head that was sent, in float64.
        layer: the layer that reads the features.
        failures: searches without a new record after which it ends.
        generator: of the searches.
    """

    def __init__(
        self,
        algorithm: FrozenBackboneAlgorithm,
        model: dict[str, Tensor],
        layer: str,
        failures: int,
        generator: torch.Generator,
    ) -> None:
        self.algorithm = algorithm
        self.model = model
        self.layer = layer
        self.failures = failures
        self.generator = generator

    def errors(self, inputs: Tensor) -> Tensor:
        """``(M, K, N)`` gradients of each record's loss by the outputs of the layer, for each class."""
        return layer_errors(self.algorithm, self.model, inputs, self.layer)

    def __call__(self, state: Remaining) -> Iterator[Tensor]:
        """Features ``(P, D)`` that may be those of records; the caller stops when one is."""
        mean = state.rows[:, :-1].T @ state.rows[:, -1] / state.rows[:, -1].square().sum()
        # Means of features that are never negative are not either: else the span holds no such vector.
        if bool((mean >= _LEAST * mean.abs().max()).all()) or self._has_nonnegative(state):
            yield from self._by_zeros(state)
        if self.algorithm.hidden:
            yield from self._by_silent_neurons(state)

    def _has_nonnegative(self, state: Remaining) -> bool:
        basis = state.records
        return sparse_vector(basis[:, :-1].T, basis[:, -1], generator=self.generator) is not None

    def _by_zeros(self, state: Remaining) -> Iterator[Tensor]:
        """Vectors of the rows' span without negative numbers and with many zeros, as features behind ReLU are."""
        basis = state.records
        for _ in range(self.failures):
            coordinates = sparse_vector(basis[:, :-1].T, basis[:, -1], generator=self.generator)
            if coordinates is None:
                continue
            record = coordinates @ basis
            if bool(record[-1] > 0):
                yield record[None, :-1] / record[-1]

    def _by_silent_neurons(self, state: Remaining) -> Iterator[Tensor]:
        """Columns of the errors that are zero at many neurons and else have the signs of a class; then all inputs."""
        span = state.span
        # Errors of a record of each class at the mean of the records, whatever neurons it excites.
        signs = self._signs(state)
        columns = span.new_zeros(0, span.shape[1])
        failed = 0
        while failed < self.failures and len(columns) < state.left:
            number = int(torch.randint(len(signs), (), generator=self.generator))
            failed += 1
            sizes = signs[number]
            clear = sizes.abs() > _CLEAR * sizes.abs().median()
            numbers = span[clear] / sizes[clear, None]
            column = sparse_vector(numbers, numbers.mean(0), generator=self.generator, away=columns)
            if column is None:
                continue
            column = column / column.norm()
            if _adds(columns, column):
                columns = torch.cat([columns, column[None]])
                failed = 0
        if len(columns) < state.left:
            return
        # C^T [X, 1] = rows with columns C up to a scale of each, which the 1 takes out.
        scaled = torch.linalg.lstsq(span @ columns.T, state.rows).solution
        yield scaled[:, :-1] / scaled[:, -1:]

    def _signs(self, state: Remaining) -> Tensor:
        """``(K, N)`` errors by class of a record that excites all neurons and is predicted as the mean record is."""
        hidden = self.model[f"{self.layer}.weight"]
        output = self.model[f"{self.algorithm.output_layer}.weight"]
        bias = self.model[f"{self.algorithm.output_layer}.bias"]
        mean = state.rows[:, :-1].T @ state.rows[:, -1] / state.rows[:, -1].square().sum()
        activation = (hidden @ mean + self.model[f"{self.layer}.bias"]).relu()
        probabilities = torch.softmax(output @ activation + bias, 0)
        return probabilities @ output - output


def _adds(columns: Tensor, column: Tensor) -> bool:
    """Whether a unit column is outside of the span of others."""
    if not len(columns):
        return True
    if float((columns @ column).abs().max()) > _SAME:
        return False
    basis = torch.linalg.qr(columns.T)[0]
    outside = column - basis @ (basis.T @ column)
    return float(outside.norm()) > _INDEPENDENT
