"""Clients that grow decision trees by gradient boosting: federated bagging, and one client after the other."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from fedleak.client.algorithm import ClientAlgorithm, Shapes
from fedleak.client.tree_layout import FIELDS
from fedleak.core.ranges import NonNegativeFloat, PositiveFloat, PositiveInt, UnitInterval

Objective = Literal["binary:logistic", "reg:squarederror"]
"""Loss of the trees, by XGBoost's name."""
TreeAggregation = Literal["bagging", "cyclic"]
"""``bagging``: all clients grow trees on one forest, and the server appends all. ``cyclic``: one client a round."""
TREES = "trees"
"""Name of the trees in a recording, see `fedleak.client.tree_layout`."""
BASE_SCORE = "base_score"
"""Name of the score before the first tree ``(1,)``: a probability for ``binary:logistic``."""


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
