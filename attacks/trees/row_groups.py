"""Rows of a client as groups that no tree so far tells apart, and their assignment to the leaves of the next tree."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedleak.attacks.trees.tree_boxes import TreeBoxes

NODE_LIMIT = 20
"""Nodes of the branch and bound of one tree; the best assignment so far is taken."""
RELATIVE_GAP = 1e-3
"""Distance from the bound, as a share, at which an assignment is good enough."""


@dataclass(frozen=True)
class RowGroups:
    """Groups of equal rows.

    Attributes:
        low: ``(K, F)`` float64 box of each group, ``low <= value < high``.
        high: ``(K, F)`` float64.
        label: ``(K,)`` int64.
        margin: ``(K,)`` float64 log odds of its rows before the next tree.
        count: ``(K,)`` int64 number of rows.
        leaf: ``(K,)`` int64 leaf of the first tree.
    """

    low: Tensor
    high: Tensor
    label: Tensor
    margin: Tensor
    count: Tensor
    leaf: Tensor

    @classmethod
    def of_first_tree(cls, boxes: TreeBoxes, rows: Tensor, positives: Tensor, log_odds: float) -> "RowGroups":
        """Groups of the leaves of a first tree with so many rows and positive rows ``(N,)`` in each node."""
        leaves = boxes.is_leaf.nonzero().flatten().repeat_interleave(2)
        label = torch.tensor([0, 1]).repeat(len(leaves) // 2)
        count = torch.where(label == 1, positives[leaves], rows[leaves] - positives[leaves]).clamp(min=0)
        chosen = count > 0
        leaves, label, count = leaves[chosen], label[chosen], count[chosen]
        return cls(
            low=boxes.low[leaves],
            high=boxes.high[leaves],
            label=label,
            margin=log_odds + boxes.threshold[leaves],
            count=count,
            leaf=leaves,
        )

    def compatible(self, tree: TreeBoxes) -> tuple[Tensor, Tensor]:
        """``(L,)`` numbers of the leaves of a tree, and ``(K, L)`` whether rows of a group may be in each."""
        leaves = tree.is_leaf.nonzero().flatten()
        low = torch.maximum(self.low[:, None], tree.low[leaves])
        high = torch.minimum(self.high[:, None], tree.high[leaves])
        return leaves, (low < high).all(2)

    def beside(self, others: list[TreeBoxes]) -> "RowGroups":
        """The groups after trees of other clients, with the mean of the leaves that may hold them, by Hessians."""
        margin = self.margin.clone()
        for tree in others:
            leaves, may_hold = self.compatible(tree)
            weight = may_hold * tree.hessian[leaves]
            margin += (weight @ tree.threshold[leaves]) / weight.sum(1).clamp(min=1e-12)
        return RowGroups(self.low, self.high, self.label, margin, self.count, self.leaf)

    def after(self, tree: TreeBoxes, eta: float, reg_lambda: float) -> "RowGroups":
        """The groups with the rows assigned to the leaves of a tree, so that its sums fit best."""
        leaves, may_hold = self.compatible(tree)
        group, place = may_hold.nonzero(as_tuple=True)
        if len(group) == 0:
            return self
        hessian = tree.hessian[leaves]
        gradient = -tree.threshold[leaves] / eta * (hessian + reg_lambda)
        assigned = assignment(self, group, place, gradient, hessian)
        is_used = assigned > 0
        group, place, assigned = group[is_used], place[is_used], assigned[is_used]
        return RowGroups(
            low=torch.maximum(self.low[group], tree.low[leaves[place]]),
            high=torch.minimum(self.high[group], tree.high[leaves[place]]),
            label=self.label[group],
            margin=self.margin[group] + tree.threshold[leaves[place]],
            count=assigned,
            leaf=self.leaf[group],
        )


def assignment(groups: RowGroups, group: Tensor, place: Tensor, gradient: Tensor, hessian: Tensor) -> Tensor:
    """``(P,)`` int64 numbers of rows of a group in a leaf, for each of the pairs of both that are possible.

    It minimises the sum over leaves of how far the sums of gradients and of Hessians are from those of the tree. Rows
    of a group are alike, so that whole numbers take the place of a binary variable for each row and leaf.

    Args:
        groups: the groups.
        group: ``(P,)`` group of each pair.
        place: ``(P,)`` leaf of each pair.
        gradient: ``(L,)`` sum of gradients of each leaf.
        hessian: ``(L,)`` sum of Hessians of each leaf.
    """
    from scipy import optimize, sparse  # slow to import

    pairs, leaves = len(group), len(gradient)
    probability = groups.margin.sigmoid()
    gradients = (probability - groups.label)[group].numpy()
    hessians = (probability * (1 - probability))[group].numpy()
    numbers, places = np.arange(pairs), place.numpy()
    # Variables: the numbers of rows, then the distances of the gradients and of the Hessians of each leaf.
    of_groups = sparse.csr_matrix((np.ones(pairs), (group.numpy(), numbers)), (len(groups.count), pairs + 2 * leaves))
    constraints = [optimize.LinearConstraint(of_groups, groups.count.numpy(), groups.count.numpy())]
    for offset, values, sums in ((0, gradients, gradient), (leaves, hessians, hessian)):
        sums_of_leaves = sparse.csr_matrix((values, (places, numbers)), (leaves, pairs + 2 * leaves))
        columns = np.arange(leaves)
        distances = sparse.csr_matrix((np.ones(leaves), (columns, pairs + offset + columns)), sums_of_leaves.shape)
        # |sum - target| <= distance
        constraints.append(optimize.LinearConstraint(sums_of_leaves - distances, -np.inf, sums.numpy()))
        constraints.append(optimize.LinearConstraint(sums_of_leaves + distances, sums.numpy(), np.inf))
    solution = optimize.milp(
        c=np.concatenate([np.zeros(pairs), np.ones(2 * leaves)]),
        constraints=constraints,
        integrality=np.concatenate([np.ones(pairs), np.zeros(2 * leaves)]),
        bounds=optimize.Bounds(0, np.inf),
        options={"node_limit": NODE_LIMIT, "mip_rel_gap": RELATIVE_GAP},
    )
    if solution.x is None:
        return _evenly(groups, group)
    return torch.from_numpy(solution.x[:pairs].round()).long()


def _evenly(groups: RowGroups, group: Tensor) -> Tensor:
    """All rows of each group in the first leaf that may hold them, where no assignment is found in the limit."""
    is_first = torch.ones(len(group), dtype=torch.bool)
    is_first[1:] = group[1:] != group[:-1]
    return torch.where(is_first, groups.count[group], 0)
