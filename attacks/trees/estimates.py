"""What is inferred from trees: the rows of each node, and the rows themselves."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.attacks.trees.tree_boxes import TreeBoxes
from fedleak.client.tree_layout import nodes_of
from fedleak.client.trees import TreesAlgorithm
from fedleak.core.attack import Attack
from fedleak.core.estimates import Estimate, EstimateError, Scores, check_tensor
from fedleak.core.metric import POSITIVE, SHARE, Metric
from fedleak.core.view import View


def without_trees(view: View, truth: Collection[str]) -> str | None:  # noqa: ARG001
    """Why a question about trees does not apply, as a clause; the ground truth does not matter."""
    if view.algorithm is not None and not isinstance(view.algorithm, TreesAlgorithm):
        return "the clients send no decision trees"
    return None


@dataclass(frozen=True, kw_only=True)
class TreeCountsEstimate(Estimate):
    """Numbers of rows and of positive rows of every node of the trees of each client.

    A node counts as exact if both numbers are right. A certified node of which one is wrong is false.

    Attributes:
        rows: ``(V, T, N)`` int64 rows of each node; -1 where nothing is inferred.
        positives: ``(V, T, N)`` int64 positive rows.
        certified: ``(V, T, N)`` bool, whether the attack is certain of both.
    """

    inferred = "how many of its rows, and how many positive ones, have the values of each leaf"
    truth = ("record_hash", "records", "record_labels")
    metrics: ClassVar[tuple[str | Metric, ...]] = (
        Metric(
            "exact-nodes",
            "Exact nodes is the share of the nodes of a client's trees whose numbers of rows and of positives are"
            " inferred exactly, in the rounds in which any number of a node can be inferred: mostly the first.",
            judged=True,
            guessing=0.0,
            span=SHARE,
            words="counts the rows and the positive rows of {} of 100 nodes exactly, in the rounds whose trees it can"
            " count in, mostly the first",
            certified=("certified-nodes", "false-certified-nodes", "both numbers of {} of 100 nodes"),
        ),
        Metric(
            "certified-nodes",
            "Certified nodes is the share of the nodes of whose numbers the attack is certain.",
            leak=False,
            span=SHARE,
        ),
        Metric(
            "false-certified-nodes",
            "False certified nodes is the number of nodes that are certified with a wrong number.",
            leak=False,
            lower_is_better=True,
            span=POSITIVE,
        ),
    )
    rows: Tensor
    positives: Tensor
    certified: Tensor

    @classmethod
    def inapplicable(cls, view: View, truth: Collection[str]) -> str | None:
        return without_trees(view, truth)

    def check(self, view: View) -> None:
        shape = tuple(view.deltas["trees"].shape[:3])
        check_tensor("rows", self.rows, shape, dtype=torch.int64)
        check_tensor("positives", self.positives, shape, dtype=torch.int64)
        check_tensor("certified", self.certified, shape, dtype=torch.bool)
        if bool((self.certified & (self.rows < 0)).any()):
            raise EstimateError("certified: expected nodes whose rows are inferred")

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """Shares of the nodes of each client; NaN for a client without a tree."""
        exact, certified, false = (torch.full((view.victims,), torch.nan, dtype=torch.float64) for _ in range(3))
        nodes = torch.zeros(view.victims, dtype=torch.int64)
        for victim in range(view.victims):
            rows, labels = rows_of(truth, victim)
            is_node, true_rows, true_positives = true_counts(view.deltas["trees"][victim], rows, labels)
            nodes[victim] = int(is_node.sum())
            if nodes[victim] == 0:
                continue
            is_exact = (self.rows[victim] == true_rows) & (self.positives[victim] == true_positives)
            is_certified = self.certified[victim]
            exact[victim] = is_exact[is_node].double().mean()
            certified[victim] = is_certified[is_node].double().mean()
            false[victim] = (is_certified & ~is_exact)[is_node].sum()
        metrics = {"exact-nodes": exact, "certified-nodes": certified, "false-certified-nodes": false}
        return Scores(metrics, nodes)


def rows_of(truth: Mapping[str, Tensor], victim: int) -> tuple[Tensor, Tensor]:
    """Rows ``(R, F)`` float32 and classes ``(R,)`` int64 of one client, without padding."""
    is_row = (truth["record_hash"][victim].flatten(1) != 0).any(1)
    rows = truth["records"][victim][is_row].flatten(1).float()
    return rows, truth["record_labels"][victim][is_row].long()


def true_counts(trees: Tensor, rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Which lines of trees ``(T, N, 8)`` are nodes, and how many of the rows and of the positive ones pass each.

    Numbers that are no tree have the nodes of padding: none.
    """
    is_node = torch.zeros(trees.shape[:2], dtype=torch.bool)
    counts = torch.zeros(trees.shape[:2], dtype=torch.int64)
    positives = torch.zeros_like(counts)
    for number, tree in enumerate(trees):
        boxes = TreeBoxes.of(tree, features=rows.shape[1])
        if boxes is None:
            continue
        passed = nodes_of(tree, rows)
        is_node[number, : len(boxes.left)] = True
        counts[number] = passed.sum(0)
        positives[number] = passed[labels > 0].sum(0)
    return is_node, counts, positives


class TreeCountsAttack(Attack):
    """Base class of attacks that count the rows of the nodes of trees."""

    family = "trees"
    estimates: ClassVar[type[Estimate]] = TreeCountsEstimate
