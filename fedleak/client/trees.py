"""Clients that grow decision trees by gradient boosting: federated bagging, and one client after the other."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedleak.client.algorithm import ClientAlgorithm, Model, Shapes
from fedleak.client.tree_layout import FIELDS, margins, tree_count
from fedleak.core.errors import InputError
from fedleak.core.ranges import NonNegativeFloat, PositiveFloat, PositiveInt, UnitInterval
from fedleak_recorder.shard_check import TREES as TREES
from fedleak_recorder.tree_recorder import BASE_SCORE as BASE_SCORE
from fedleak_recorder.trees import read_forest

Objective = Literal["binary:logistic", "reg:squarederror"]
"""Loss of the trees, by XGBoost's name."""
TreeAggregation = Literal["bagging", "cyclic"]
"""``bagging``: all clients grow trees on one forest, and the server appends all. ``cyclic``: one client a round."""


@dataclass(frozen=True, kw_only=True)
class TreesAlgorithm(ClientAlgorithm):
    """Clients that grow trees of XGBoost on the forest that they receive.

    A round of a client: the gradients and Hessians of its rows at the received forest, then `trees` trees one after the
    other, of which it sends the nodes. Its first message also tells the score before the first tree, which XGBoost
    takes from the labels of the client.

    Attributes:
        objective: loss.
        eta: learning rate.
        depth: largest number of splits between the root and a leaf.
        reg_lambda: what is added to the Hessian of a node for its weight.
        min_child_weight: least sum of Hessians in a child.
        subsample: share of the rows on which each tree is grown.
        trees: new trees of a client in a round.
        aggregation: who trains in a round.
        features: columns of the table.
        seed: seed of the drawing of rows, which matters with a `subsample` below 1.

    Example:
        >>> algorithm = TreesAlgorithm(
        ...     objective="binary:logistic", eta=0.1, depth=3, reg_lambda=1.0, min_child_weight=1.0, subsample=1.0,
        ...     trees=1, aggregation="bagging", features=10, seed=0,
        ... )
        >>> algorithm.largest_tree
        15
    """

    name: ClassVar[str] = "trees"

    objective: Objective
    eta: PositiveFloat
    depth: PositiveInt
    reg_lambda: NonNegativeFloat
    min_child_weight: NonNegativeFloat
    subsample: UnitInterval
    trees: PositiveInt
    aggregation: TreeAggregation
    features: PositiveInt
    seed: int

    @property
    def largest_tree(self) -> int:
        """Number of nodes of a tree of which every leaf is as deep as allowed."""
        nodes: int = 2 ** (self.depth + 1) - 1
        return nodes

    def network_shapes(self, recorded: Shapes) -> dict[str, tuple[int, ...]]:
        """The forest has room for some number of trees and nodes, which the recording tells; a node has 8 fields."""
        capacity, nodes, _ = recorded[TREES]
        return {TREES: (capacity, nodes, FIELDS), BASE_SCORE: (1,)}

    def start(self, base_score: float) -> float:
        """The margin before the first tree: the logit of a probability, or the score itself."""
        if self.objective == "binary:logistic":
            return math.log(base_score / (1 - base_score))
        return base_score

    def grow(self, model: Model, rows: Tensor, labels: Tensor, *, round_number: int = 0) -> dict[str, Tensor]:
        """What a client sends: its new `trees` ``(T, N, 8)`` and ``base_score (1,)``.

        Without a tree in the forest, XGBoost takes the base score from the client's labels; with one, that of the
        forest stays.

        Args:
            model: the forest that the client received.
            rows: ``(E, F)`` float32, missing values as NaN.
            labels: ``(E,)`` of 0 and 1, or any numbers for ``reg:squarederror``.
            round_number: number of the round, on which the drawing of rows depends.

        Raises:
            InputError: XGBoost is not installed.
        """
        xgboost = _xgboost()
        matrix = xgboost.DMatrix(rows.numpy(), labels.numpy())
        base_score = None
        if tree_count(model[TREES]):
            # XGBoost goes on from margins just as from a model whose margins they are.
            base_score = float(model[BASE_SCORE])
            matrix.set_base_margin(margins(model[TREES], rows).numpy() + self.start(base_score))
        parameters = {
            "objective": self.objective,
            "eta": self.eta,
            "max_depth": self.depth,
            "lambda": self.reg_lambda,
            "min_child_weight": self.min_child_weight,
            "subsample": self.subsample,
            "seed": self.seed + round_number,
            "tree_method": "hist",
            "nthread": 1,
            "verbosity": 0,
        }
        booster = xgboost.train(parameters, matrix, num_boost_round=self.trees)
        forest = read_forest(booster.save_raw("ubj"), where="the client's own trees")
        grown = forest.padded(self.trees, self.largest_tree, where="the client's own trees")
        if base_score is None:
            base_score = forest.base_score
        return {TREES: torch.from_numpy(grown), BASE_SCORE: torch.tensor([base_score], dtype=torch.float32)}


def _xgboost() -> Any:
    """The package, which is imported for a training alone."""
    try:
        import xgboost
    except ImportError:
        raise InputError(
            expected="the package xgboost, which grows the trees",
            found="none",
            way_out="Install the extra: in the checkout, pip install ./recorder '.[trees]'.",
        ) from None
    return xgboost
