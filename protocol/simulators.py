"""Simulators: the clients' local algorithm, which is public because the server wrote it. They hold no client's data."""

from collections.abc import Mapping
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

ListMetric = Literal["max-rr", "dcg"]
"""Quality of a list by the places of its clicks, see `protocol.list_metrics`."""


@runtime_checkable
class RecommenderSimulator(Protocol):
    """The clients' local algorithm, which is public: the server wrote it.

    It simulates clients; it holds no client's data.
    """

    @property
    def user_dim(self) -> int:
        """Length of a client's private vector."""

    @property
    def learning_rate(self) -> float:
        """Local learning rate."""

    def simulate(
        self,
        model: Mapping[str, Tensor],
        items: Tensor,
        labels: Tensor,
        users: Tensor,
        *,
        differentiable: bool = False,
    ) -> dict[str, Tensor]:
        """Trains simulated clients as the real ones train.

        Args:
            model: the global model before the round, one tensor per public parameter.
            items: item numbers ``(B, R)``, padded with -1.
            labels: interactions in [0, 1], ``(B, R)``; soft labels are allowed.
            users: private user vectors before the round ``(B, user_dim)``.
            differentiable: keep the graph, so that gradients reach `labels` and `users`.

        Returns:
            Deltas by parameter name: ``(B, R, d)`` for the item table (zero where padded), ``(B, *shape)`` for others.
        """


@runtime_checkable
class RankingSimulator(Protocol):
    """The clients' local algorithm where they click in ranked lists."""

    click_model: str
    grade_law: Tensor

    @property
    def learning_rate(self) -> float:
        """Local learning rate."""

    def simulate_lists(
        self,
        model: Mapping[str, Tensor],
        features: Tensor,
        mask: Tensor,
        clicks: Tensor,
        order: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Trains simulated clients as the real ones train, list after list; gradients reach `clicks`.

        Args:
            model: the global model before the round, one tensor per public parameter.
            features: ``(B, Q, L, F)`` features as served, in displayed order.
            mask: ``(B, Q, L)`` True for documents; padding comes last.
            clicks: ``(B, Q, L)`` in [0, 1], zero where padded.
            order: ``(B, Q)`` in which the lists are worked through, None for the order in which they are given.

        Returns:
            Deltas by parameter name, ``(B, *shape)``.
        """


@runtime_checkable
class MarginSimulator(Protocol):
    """The clients' local algorithm where the loss of an item is a function of the margin, ``l(y u.v)``."""

    @property
    def slope_at_zero(self) -> float:
        """Derivative of the loss at margin 0."""

    @property
    def learning_rate(self) -> float:
        """Local learning rate."""


@runtime_checkable
class ExampleSimulator(Protocol):
    """The clients' local algorithm where they learn from examples of any kind."""

    def simulate_examples(
        self,
        model: Mapping[str, Tensor],
        features: Tensor,
        labels: Tensor,
        examples: Tensor,
        /,
        *,
        generator: torch.Generator,
    ) -> dict[str, Tensor]:
        """Trains simulated clients as the real ones train, all from the same global model.

        Args:
            model: the global model before the round, one tensor per public parameter.
            features: a pool ``(M, ...)``.
            labels: their labels ``(M, ...)``.
            examples: ``(B, N)`` int64, what each client holds of the pool, padded with -1 at the end.
            generator: source of the order of mini-batches.

        Returns:
            Deltas by parameter name, ``(B, *shape)``.
        """


@runtime_checkable
class ClassifierSimulator(ExampleSimulator, Protocol):
    """The clients' local algorithm where they learn to classify; the network ends in one linear layer."""

    @property
    def output_layer(self) -> str:
        """Name of the last layer: its parameters are ``NAME.weight (K, F)`` and ``NAME.bias (K,)``."""

    def outputs(self, models: Mapping[str, Tensor], images: Tensor) -> tuple[Tensor, Tensor]:
        """What several models make of the same images.

        Args:
            models: by parameter ``(B, *shape)``.
            images: ``(M, channels, height, width)``.

        Returns:
            What enters the last layer ``(B, M, F)``, and the logits ``(B, M, K)``.
        """

    def decay_change(self, model: Mapping[str, Tensor], example_counts: Tensor) -> dict[str, Tensor]:
        """What weight decay alone changes, where the optimizer keeps it apart from the gradients: plain SGD.

        Args:
            model: the global model before the round.
            example_counts: ``(V,)`` examples of each client.

        Returns:
            By parameter ``(V, *shape)``; zero where there is no decay, or it is not separate from the gradients.
        """


@runtime_checkable
class PointwiseSimulator(Protocol):
    """The clients' local algorithm where they learn a score of each item by itself, in full-batch steps."""

    @property
    def learning_rate(self) -> float:
        """Local learning rate."""

    @property
    def full_batch_steps(self) -> int:
        """Steps, each over all items."""


@runtime_checkable
class MetricSimulator(Protocol):
    """The clients' algorithm where they share nothing but a metric.

    Attributes:
        metric: what they share.
        numbers: how many of it: the first half of a client's lists and the second, or one over all.
        truthful: probability with which a list's metric is reported truthfully; all other values are equally likely.
    """

    metric: ListMetric
    numbers: int
    truthful: float


AnySimulator = RecommenderSimulator | RankingSimulator | ClassifierSimulator | PointwiseSimulator | ExampleSimulator
