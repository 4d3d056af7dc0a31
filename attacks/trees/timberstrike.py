"""TimberStrike: rows as boxes between splits, assigned to the leaves of one tree after the other."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.attacks.trees.category_forests import CategoryForests
from fedleak.attacks.trees.row_columns import PublicColumns
from fedleak.attacks.trees.row_estimates import RowsOfClient, TreeRowsAttack, TreeRowsEstimate
from fedleak.attacks.trees.row_groups import RowGroups
from fedleak.attacks.trees.tree_boxes import TreeBoxes
from fedleak.attacks.trees.tree_messages import ClientTrees, trees_of_clients
from fedleak.client.auxiliary_images import IMAGES, LABELS
from fedleak.client.trees import TreesAlgorithm
from fedleak.core.attack import Variants
from fedleak.core.errors import ViewError
from fedleak.core.history import History
from fedleak.core.ranges import PositiveInt
from fedleak.core.threat_model import ThreatModel

MOST_ROWS = 20_000
"""Rows that a client may have; a message that claims more is not followed."""


@dataclass(frozen=True, kw_only=True)
class TimberStrike(TreeRowsAttack):
    """TimberStrike, as published: rows of the leaves of the first tree, narrowed by each later tree of the client.

    First-tree probing: a leaf has ``round(H / (p (1 - p)))`` rows, of which ``round(H / (1 - p) - G)`` are positive,
    with ``G = -w (H + lambda)``. Each row is the box of its leaf. Then, tree after tree, rows are assigned to the
    leaves whose boxes meet theirs, so that the sums of gradients and Hessians of the leaves are as near as possible to
    those of the tree (an integer program), and their boxes are cut. The log odds of a row grow by the value of its leaf
    and, for trees of other clients in between, by the mean of the values of the leaves that may hold it, weighted by
    their Hessians. In the end a number is the middle of its range, and a category one of those in its range at random.
    Categories that no split tells of are predicted by a random forest from the numbers, which is fitted to the rows of
    the adversary.

    The published first-tree accuracies (0.72 to 0.79 on the stroke table) need those predictions; the authors' code
    computes its printed accuracy before them, with unknown categories as wrong, which is the variant ``unfilled``.

    Differences: rows that are alike are one whole number in the program instead of a binary variable each, which has
    the same best value; it is solved by HiGHS with a limit on its nodes instead of Gurobi with one on time; and the
    base score is the client's own, which its first message tells, instead of the forest's.

    Threat model: a server or another client that sees the trees of each client and in which order they came; knows the
    learning rate, lambda and the ranges of the columns, and holds rows of the same kind, as another client does.

    Args:
        fills: whether categories that no split tells of are predicted; else they stay unknown, which is wrong.
        most_trees: number of trees of each client that are read.
        few_levels: a number with at most so many values is a category.

    Variants:
        unfilled: categories that no split tells of stay unknown.
        first-tree: the first tree alone.

    Raises:
        ViewError: the clients learn another objective, or mask sums of Hessians.

    References:
        [DiGennaro25], sections 4 and 5, and the authors' code.

    Example:
        >>> import torch
        >>> from fedleak.attacks.trees import TimberStrike
        >>> from fedleak.attacks.trees.toy import rounds_toy
        >>> view, truth = rounds_toy()
        >>> estimate = TimberStrike()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["reconstruction-accuracy"].mean()), 2)
        0.47
    """

    name = "timberstrike"
    references = ("DiGennaro25, section 5",)
    cost = "seconds per victim"
    threat_model = ThreatModel(
        sees="the trees that each client sends in all rounds, and its base score",
        knows="the learning rate and lambda of the job, the ranges of the table's columns, and similar rows",
        needs=("deltas", "sent_in", f"auxiliary:{IMAGES}", f"auxiliary:{LABELS}", TreesAlgorithm),
    )
    variants: ClassVar[Variants] = {"unfilled": {"fills": False}, "first-tree": {"most_trees": 1}}

    fills: bool = True

    most_trees: PositiveInt = 20
    few_levels: PositiveInt = 8

    def run(self, view: History, *, generator: torch.Generator) -> TreeRowsEstimate:
        algorithm = logistic(view)
        columns = PublicColumns.of(view)
        forests = None
        if self.fills:
            forests = view.shared.value(
                ("category forests", self.few_levels), lambda: CategoryForests.of(view, columns, self.few_levels)
            )
        clients = trees_of_clients(view, algorithm, self.most_trees)
        reconstructed = []
        for client in clients:
            groups = self._groups(client, algorithm)
            client_rows = self._rows(groups, columns, generator)
            if forests is not None:
                client_rows = client_rows._replace(rows=forests.filled(client_rows.rows))
            reconstructed.append(client_rows)
        return TreeRowsEstimate.of(torch.tensor([client.message for client in clients]), reconstructed)

    def _groups(self, client: ClientTrees, algorithm: TreesAlgorithm) -> RowGroups | None:
        """Rows of a client after all of its trees; None for a client whose first tree tells nothing."""
        if not client.trees or not 0 < client.trees[0].base_score < 1:
            return None
        first = client.trees[0]
        if first.boxes.is_masked:
            raise ViewError("expected sums of Hessians, got trees in which they are masked")
        rows, positives = first_tree_counts(first.boxes, first.base_score, algorithm)
        if not 0 < int(rows[first.boxes.is_leaf].sum()) <= MOST_ROWS:
            return None
        return after_all_trees(client, rows, positives, algorithm)

    def _rows(self, groups: RowGroups | None, columns: PublicColumns, generator: torch.Generator) -> RowsOfClient:
        if groups is None:
            return nothing(len(columns.lowest))
        low = groups.low.repeat_interleave(groups.count, dim=0)
        high = groups.high.repeat_interleave(groups.count, dim=0)
        rows = torch.full_like(low, torch.nan)
        for column, inputs in enumerate(columns.groups):
            if bool(columns.is_category[column]):
                rows[:, inputs] = _random_category(low[:, inputs], high[:, inputs], generator)
                continue
            number = int(inputs[0])
            least, most = float(columns.lowest[number]), float(columns.highest[number])
            if 0 < columns.levels(column) <= self.few_levels:
                step = float(columns.step[number])
                levels = least + step * torch.arange(columns.levels(column), dtype=torch.float64)
                rows[:, number] = _random_level(low[:, number], high[:, number], levels, generator)
                continue
            rows[:, number] = (low[:, number].maximum(torch.tensor(least)) + high[:, number].clamp(max=most)) / 2
        labels = groups.label.repeat_interleave(groups.count)
        return RowsOfClient(rows, labels, low, high, torch.zeros(len(rows), dtype=torch.bool))


def logistic(view: History) -> TreesAlgorithm:
    """What the clients run.

    Raises:
        ViewError: they learn something else than a yes or no.
    """
    algorithm = view.require(TreesAlgorithm)
    if algorithm.objective != "binary:logistic":
        raise ViewError(f"expected clients that learn binary:logistic, got {algorithm.objective}")
    return algorithm


def nothing(features: int) -> RowsOfClient:
    """No rows."""
    return RowsOfClient.guessed(torch.zeros(0, features), torch.zeros(0))


def after_all_trees(client: ClientTrees, rows: Tensor, positives: Tensor, algorithm: TreesAlgorithm) -> RowGroups:
    """Rows of a client after all of its trees, from the numbers ``(N,)`` of rows in the nodes of the first one."""
    first = client.trees[0]
    # Later trees are grown on the forest, whose base score may be another than that of the client's first tree.
    later = client.trees[min(1, len(client.trees) - 1)]
    log_odds = float(torch.tensor(later.base_score, dtype=torch.float64).logit())
    groups = RowGroups.of_first_tree(first.boxes, rows, positives, log_odds)
    for tree in client.trees[1:]:
        groups = groups.beside(tree.others).after(tree.boxes, algorithm.eta, algorithm.reg_lambda)
    return groups


def first_tree_counts(boxes: TreeBoxes, base_score: float, algorithm: TreesAlgorithm) -> tuple[Tensor, Tensor]:
    """``(N,)`` int64 rows and positive rows of the nodes of a first tree, rounded as published."""
    gradient = -boxes.threshold / algorithm.eta * (boxes.hessian + algorithm.reg_lambda)
    rows = (boxes.hessian / (base_score * (1 - base_score))).round().clamp(min=0, max=2 * MOST_ROWS)
    positives = (boxes.hessian / (1 - base_score) - gradient).round().clamp(min=0)
    return rows.long(), positives.minimum(rows).long()


def _random_level(low: Tensor, high: Tensor, levels: Tensor, generator: torch.Generator) -> Tensor:
    """``(M,)`` one of the levels ``(L,)`` in each range ``(M,)``; NaN for a range that nothing limits."""
    is_inside = (levels >= low[:, None]) & (levels < high[:, None])
    drawn = _drawn(is_inside, generator)
    is_open = low.isinf() & high.isinf()
    return levels[drawn].masked_fill(is_open | ~is_inside.any(1), torch.nan)


def _random_category(low: Tensor, high: Tensor, generator: torch.Generator) -> Tensor:
    """``(M, K)`` a one-hot vector in each box; NaN for a box that nothing limits."""
    is_possible = (high > 1) & ~((low > 0).any(1, keepdim=True) & (low <= 0))
    drawn = _drawn(is_possible, generator)
    vectors = torch.zeros_like(low).scatter(1, drawn[:, None], 1.0)
    is_open = (low.isinf() & high.isinf()).all(1) | ~is_possible.any(1)
    return vectors.masked_fill(is_open[:, None], torch.nan)


def _drawn(is_possible: Tensor, generator: torch.Generator) -> Tensor:
    """``(M,)`` one of the possible columns of each row of a mask ``(M, K)``, any column for a row without."""
    keys = torch.rand(is_possible.shape, generator=generator).masked_fill(~is_possible, -1.0)
    return keys.argmax(1)
