"""Simulators: the clients' local algorithm, which is public because the server wrote it. They hold no client's data."""

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

ListMetric = Literal["max-rr", "dcg"]
"""Quality of a list by the positions of its clicks, see `client.list_metrics`."""
Model = Mapping[str, Tensor]
"""The global model before the round, one tensor per public parameter."""


class _Local(Protocol):
    @property
    def learning_rate(self) -> float:
        """Local learning rate."""


@runtime_checkable
class RecommenderSimulator(_Local, Protocol):
    """Clients of a recommender, with a private user vector each."""

    @property
    def user_dim(self) -> int:
        """Length of a user vector."""

    def simulate(
        self, model: Model, items: Tensor, labels: Tensor, users: Tensor, *, differentiable: bool = False
    ) -> dict[str, Tensor]:
        """Trains simulated clients.

        Args:
            model: the global model.
            items: item numbers ``(B, R)``, padded with -1.
            labels: interactions in [0, 1], ``(B, R)``; soft labels are allowed.
            users: private user vectors before the round ``(B, user_dim)``.
            differentiable: keep the graph, so that gradients reach `labels` and `users`.

        Returns:
            Deltas by parameter name: ``(B, R, d)`` for the item table (zero where padded), ``(B, *shape)`` for others.
        """


@runtime_checkable
class RankingSimulator(_Local, Protocol):
    """Clients that click in ranked lists."""

    @property
    def click_model(self) -> str:
        """Name of the cascade click model that the clients follow."""

    @property
    def grade_law(self) -> Sequence[float]:
        """How often each grade occurs among the documents."""

    def simulate_lists(
        self,
        model: Model,
        features: Tensor,
        mask: Tensor,
        clicks: Tensor,
        order: Tensor | None = None,
        *,
        document: Tensor | None = None,
        half_detached: bool = False,
    ) -> dict[str, Tensor]:
        """Trains simulated clients, list after list; gradients reach `clicks`.

        Args:
            model: the global model, ``shape`` each, or a model of each client's own, ``(B, *shape)``.
            features: ``(B, Q, L, F)`` features as served, in displayed order.
            mask: ``(B, Q, L)`` True for documents; padding comes last.
            clicks: ``(B, Q, L)`` in [0, 1], zero where padded.
            order: ``(B, Q)`` order of the lists, None for the given one.
            document: ``(B, Q, L)`` numbers of the documents, for clients whose training depends on them.
            half_detached: give the gradients of RAIFLE's published code, see `client.pdgd.position_bias_ratio`.

        Returns:
            Deltas by parameter name, ``(B, *shape)``.
        """


@runtime_checkable
class MarginSimulator(_Local, Protocol):
    """Clients whose loss of an item is a function of the margin, ``l(y u.v)``."""

    @property
    def slope_at_zero(self) -> float:
        """Derivative of the loss at margin 0."""


@runtime_checkable
class ExampleSimulator(Protocol):
    """Clients that learn from examples of any kind."""

    def simulate_examples(
        self, model: Model, features: Tensor, labels: Tensor, examples: Tensor, /, *, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Trains simulated clients from the same global model.

        Args:
            model: the global model.
            features: a pool ``(M, ...)``.
            labels: their labels ``(M, ...)``.
            examples: ``(B, N)`` int64 indices of each client's examples in the pool, padded with -1 at the end.
            generator: source of the order of mini-batches.

        Returns:
            Deltas by parameter name, ``(B, *shape)``.
        """


@runtime_checkable
class SteppedSimulator(ExampleSimulator, _Local, Protocol):
    """Clients that learn from examples in steps of gradient descent."""

    def steps(self, example_counts: Tensor) -> Tensor:
        """``(V,)`` number of local steps of clients with ``example_counts (V,)``."""


@runtime_checkable
class NextWordSimulator(SteppedSimulator, Protocol):
    """Clients that learn to predict each next word of their sentences, by a network in which no word sees later ones.

    The gradient of a linear layer is a sum of products with the layer's inputs, so its rows lie in their span. Inputs
    have a 1 at the end, to which the gradient of the bias belongs. Words are numbers from 1; 0 is padding.
    """

    @property
    def word_table(self) -> str:
        """Name of the parameter ``(W, d)`` with the words' vectors."""

    def layer_gradients(self, deltas: Model) -> tuple[Tensor, Tensor, Tensor]:
        """Changes ``(V, M, D)`` of three layers, of which the last two may be one.

        The first layer's input is a sum of one part for its word and place, and one for the words before; the second
        is deeper; the third is the last, with a row for each word.
        """

    def word_inputs(self, model: Model, place: int) -> Tensor:
        """``(W, D)`` float64 part of the first layer's input for every word at a place, from 0."""

    def prefix_inputs(self, model: Model, prefixes: Tensor) -> Tensor:
        """``(P, D)`` float64 part of the first layer's input for the words before: prefixes ``(P, L)``."""

    def deeper_inputs(self, model: Model, prefixes: Tensor) -> Tensor:
        """``(P, D)`` float64 inputs of the second layer at the last word of prefixes ``(P, L)``, L > 0."""

    def last_inputs(self, model: Model, prefixes: Tensor) -> Tensor:
        """``(P, D)`` float64 inputs of the last layer at the last word of prefixes ``(P, L)``, L > 0."""


@runtime_checkable
class ClassifierSimulator(SteppedSimulator, Protocol):
    """Clients that learn to classify by softmax; the network ends in one linear layer."""

    @property
    def output_layer(self) -> str:
        """Name of the last layer: its parameters are ``NAME.weight (K, F)`` and ``NAME.bias (K,)``."""

    @property
    def plain_sgd(self) -> bool:
        """Whether a step is minus the learning rate times a gradient, and nothing else."""

    def without_noise(self) -> "ClassifierSimulator":
        """The same clients without the noise that private local training adds in every step."""

    def outputs(self, models: Model, images: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs of the last layer ``(B, M, F)`` and logits ``(B, M, K)`` of models ``(B, *shape)`` for M images."""

    @property
    def single_pass_batch(self) -> int | None:
        """Batch size, if clients make one pass of plain SGD over their examples; else None."""

    def step_sums(self, example_counts: Tensor) -> Tensor | None:
        """``(V,)`` sum of all step sizes; None if the optimizer scales parameters, or examples are clipped."""

    def decay_change(self, model: Model, example_counts: Tensor) -> dict[str, Tensor]:
        """Change due to weight decay alone, by parameter ``(V, *shape)``, for clients with ``example_counts (V,)``.

        Zero without decay, or if the optimizer does not separate it from the gradients; plain SGD does.
        """


@runtime_checkable
class RecordSimulator(ClassifierSimulator, Protocol):
    """Clients that learn to classify; loss and gradient of single records are known."""

    def record_losses(self, models: Model, inputs: Tensor, labels: Tensor) -> Tensor:
        """``(B, M)`` loss of each of M records ``(M, *shape)``, ``(M,)`` under models ``(B, *shape)``."""

    def record_gradients(self, model: Model, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Gradients ``(M, *shape)`` by parameter of the losses of single records ``(M, *shape)``, ``(M,)``."""

    def weighted_gradient(self, model: Model, inputs: Tensor, labels: Tensor, weights: Tensor) -> dict[str, Tensor]:
        """Gradient ``shape`` by parameter of the sum of M records' losses with weights ``(M,)``."""


@runtime_checkable
class LayerSimulator(ClassifierSimulator, Protocol):
    """Clients that learn to classify; gradients of single examples at a linear layer are known."""

    def layer_errors(self, model: Model, inputs: Tensor, layer: str) -> Tensor:
        """``(M, K, N)`` gradient of each example's loss by the outputs of a linear layer, for each class.

        Args:
            model: the global model.
            inputs: ``(M, *shape)`` examples, in the precision of the model.
            layer: name of the layer, of N outputs.
        """


@runtime_checkable
class InvertibleSimulator(SteppedSimulator, Protocol):
    """Clients whose updates can be differentiated by their examples."""

    def batches(self, example_counts: Tensor, *, generator: torch.Generator) -> Tensor:
        """``(B, S, n)`` int64 numbers of each simulated client's examples in its S steps, padded with -1."""

    def simulate_inputs(self, models: Model, inputs: Tensor, labels: Tensor, batches: Tensor) -> dict[str, Tensor]:
        """Trains simulated clients; gradients reach `inputs`.

        Args:
            models: the model that each client received, ``(B, *shape)`` by parameter.
            inputs: ``(B, M, *shape)`` examples of each client.
            labels: ``(B, M)`` their classes.
            batches: ``(B, S, n)`` numbers of the examples in each step, see `batches`.

        Returns:
            Deltas by parameter name, ``(B, *shape)``.
        """

    def input_gradients(self, models: Model, inputs: Tensor, labels: Tensor, examples: Tensor) -> dict[str, Tensor]:
        """Gradients ``(B, *shape)`` of each client's mean loss on ``examples (B, n)``; gradients reach `inputs`."""


@runtime_checkable
class ImageClassifierSimulator(ClassifierSimulator, Protocol):
    """Clients that learn to classify images."""

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""


@runtime_checkable
class PointwiseSimulator(_Local, Protocol):
    """Clients that learn a score of each item separately, in full-batch steps."""

    @property
    def full_batch_steps(self) -> int:
        """Number of steps, each over all items."""


@runtime_checkable
class MetricSimulator(Protocol):
    """Clients that share only a metric.

    Attributes:
        metric: the metric.
        numbers: number of values: for each half of a client's lists, or one over all.
        truthful: probability that a list's metric is reported truthfully; other values are equally likely.
    """

    metric: ListMetric
    numbers: int
    truthful: float


AnySimulator = object
"""A simulator of any kind; `ServerView.require` narrows it to one of the protocols above."""
