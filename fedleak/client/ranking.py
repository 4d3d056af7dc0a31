"""Clients that click in ranked lists."""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from fedleak.client.algorithm import ClientAlgorithm, Model, Shapes
from fedleak.client.click_models import CLICK_MODELS
from fedleak.core.errors import require
from fedleak.core.rankers import HIDDEN, LINEAR, OUTPUT

ClickModel = Literal["perfect", "navigational", "informational"]


@dataclass(frozen=True, kw_only=True)
class RankingAlgorithm(ClientAlgorithm, abc.ABC):
    """Clients that click in ranked lists.

    Attributes:
        click_model: name of the clients' cascade click model.
        grade_law: share of each grade among the documents.

    Raises:
        InputError: there are not 3 or 5 shares that sum to 1.
    """

    click_model: ClickModel
    grade_law: Sequence[float]

    if TYPE_CHECKING:  # a field of some subclasses, a constant of others

        @property
        def learning_rate(self) -> float:
            """Local learning rate."""

    def __post_init__(self) -> None:
        law = self.grade_law
        known_grades = len(law) in {grades for _, grades in CLICK_MODELS}
        require(
            known_grades and min(law) >= 0 and abs(sum(law) - 1) <= 1e-3,  # published shares are rounded
            "grade_law: shares of 3 or 5 grades that sum to 1",
            str(law)[:100],
            "Record again, or set learner to null in the manifest.",
        )

    def network_shapes(self, recorded: Shapes) -> dict[str, tuple[int, ...]]:
        return ranker_shapes(recorded)

    @abc.abstractmethod
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
            half_detached: give the gradients of RAIFLE's published code, see
                `fedleak.client.fpdgd.position_bias_ratio`.

        Returns:
            Deltas by parameter name, ``(B, *shape)``.
        """


def ranker_parameters(
    num_features: int, hidden: int, generator: torch.Generator, *, scaled: bool = False
) -> dict[str, Tensor]:
    """Initial ranker: ``(F,)``, or ``(H, F)`` and ``(H,)`` with hidden units.

    Args:
        num_features: number F of features.
        hidden: number H of hidden units, 0 for a linear ranker.
        generator: source of the weights.
        scaled: divide the weights by the square root of their layer's number of inputs, as torch and the published code
            for images do; without, weights are U(-1, 1) as in the published code for documents.
    """
    shapes: dict[str, tuple[int, ...]] = {LINEAR: (num_features,)}
    if hidden:
        shapes = {HIDDEN: (hidden, num_features), OUTPUT: (hidden,)}
    drawn = {name: torch.rand(shape, generator=generator) * 2 - 1 for name, shape in shapes.items()}
    if scaled:
        return {name: value / value.shape[-1] ** 0.5 for name, value in drawn.items()}
    return drawn


def ranker_shapes(recorded: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Shapes of a ranker with the features and hidden units of a recorded one."""
    if LINEAR in recorded:
        return {LINEAR: (recorded[LINEAR][0],)}
    hidden, features = recorded[HIDDEN]
    return {HIDDEN: (hidden, features), OUTPUT: (hidden,)}
