"""Exact numbers of rows and of positives of every node of a client's first tree."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.attacks.trees.estimates import TreeCountsAttack, TreeCountsEstimate
from fedleak.attacks.trees.node_counts import (
    UNKNOWN,
    NodeCounts,
    Training,
    counts_from_hessians,
    counts_from_weights,
)
from fedleak.attacks.trees.tree_boxes import TreeBoxes
from fedleak.client.tree_layout import tree_count
from fedleak.client.trees import BASE_SCORE, TREES, TreesAlgorithm
from fedleak.core.attack import Variants
from fedleak.core.errors import ViewError
from fedleak.core.ranges import PositiveInt
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView


@dataclass(frozen=True, kw_only=True)
class TreeCounts(TreeCountsAttack):
    """Rows and positive rows of every node of a tree, as whole numbers from the numbers that the tree is sent with.

    Before a client's first tree all its rows have one probability p, the base score, which the message tells; the
    gradient of a row is ``p - y`` and its Hessian ``h = p (1 - p)``. Of a node with n rows, m of them positive,
    XGBoost stores the sum of Hessians ``H = n h`` and the weight ``w = (m - n p) / (n h + lambda)``. So:

    * With H: ``n = H / h`` and ``m = n p + w (n h + lambda)``.
    * Where H is masked: gradients add up, ``w (n h + lambda) = w_l (n_l h + lambda) + w_r (n_r h + lambda)``, which is
      linear in ``n_l`` with ``n_r = n - n_l``. It starts at the root, whose n is the number of examples that the client
      reports.
    * Where that is unknown, too: the only number of rows for which the numbers of all nodes are whole. Without lambda
      all multiples of it fit as well, so that nothing is certified.

    In later trees it holds for the nodes whose box lies within a single leaf of every tree before, with that margin.

    Numbers are stored as float32. The error of each n and m follows from it: about ``1e-6 n (1 + |log odds of p|)``
    with H, and more with the mask, where the weights of two children are near to each other. A tree is certified only
    if all its numbers are whole within errors below 0.05, are possible, add up from children to parents and to the
    number of examples, and would hardly be whole by chance. Noise, rounding, fractional row weights, a drawing of rows,
    another lambda or learning rate than declared break that, and the counts are then only the nearest ones. The attack
    refuses clients that declare to draw rows.

    Not certified, because such settings could make it look whole as well: a tree with one split; a masked tree without
    a split; and a weight of exactly 0, if p is not 1/2.

    What no number of a tree reveals, a certificate takes for granted: a row with the weight 2 is two rows, so that a
    client with whole row weights has other numbers of rows than certified. Where H is masked, the reported number of
    examples is taken at its word; without lambda, the weights fit its multiples as well.

    Threat model: passive server, one round; knows the learning rate and lambda, which are settings of the job, and how
    many examples the client reports.

    Args:
        use_hessians: whether sums of Hessians are read where they are not masked.
        knows_size: whether the number of examples that the client reports is used.
        most_rows: largest number of rows that is tried where it is not.

    Variants:
        masked: the sums of Hessians are not read, as from a sender who masks them.
        unknown-size: the number of examples is not used.
        masked-unknown-size: neither is used.

    Raises:
        ViewError: the clients learn another objective, or declare to draw rows.

    References:
        This project. The sums of a leaf of the first tree are the first step of [DiGennaro25].

    Example:
        >>> import torch
        >>> from fedleak.attacks.trees import TreeCounts
        >>> from fedleak.attacks.trees.toy import toy
        >>> view, truth = toy()
        >>> estimate = TreeCounts()(view, generator=torch.Generator().manual_seed(0))
        >>> float(estimate.score(view, truth).metrics["exact-nodes"].mean())
        1.0
    """

    name = "tree-counts"
    exact = True
    certifies = True
    threat_model = ThreatModel(
        sees="the trees that each client sends, its base score and the forest before",
        knows="the learning rate and lambda of the job, and how many examples the client reports",
        needs=(f"deltas:{TREES}", f"deltas:{BASE_SCORE}", f"model:{TREES}", TreesAlgorithm),
    )
    variants: ClassVar[Variants] = {
        "masked": {"use_hessians": False},
        "unknown-size": {"knows_size": False},
        "masked-unknown-size": {"use_hessians": False, "knows_size": False},
    }

    use_hessians: bool = True
    knows_size: bool = True
    most_rows: PositiveInt = 100_000

    def run(self, view: RoundView, *, generator: torch.Generator) -> TreeCountsEstimate:
        trees = view.deltas[TREES]
        algorithm = view.require(TreesAlgorithm)
        if algorithm.objective != "binary:logistic":
            raise ViewError(f"expected clients that learn binary:logistic, got {algorithm.objective}")
        if algorithm.subsample < 1:
            raise ViewError(f"expected clients that use all rows, got a drawing of {algorithm.subsample:g} of them")
        rows = torch.full(trees.shape[:3], UNKNOWN)
        positives = rows.clone()
        certified = torch.zeros(trees.shape[:3], dtype=torch.bool)
        for victim in range(view.victims):
            for number, counts in enumerate(self._counts_of_client(view, victim, algorithm)):
                nodes = len(counts.rows)
                rows[victim, number, :nodes] = counts.rows
                positives[victim, number, :nodes] = counts.positives
                certified[victim, number, :nodes] = counts.certified
        if tree_count(view.model[TREES]) > 0 and bool((rows == UNKNOWN).all()):
            raise ViewError(
                "expected trees with nodes whose rows have one margin, got a forest that divides all of them"
            )
        return TreeCountsEstimate(rows=rows, positives=positives, certified=certified)

    def _counts_of_client(self, view: RoundView, victim: int, algorithm: TreesAlgorithm) -> list[NodeCounts]:
        forest = view.model[TREES]
        if view.client_models is not None and TREES in view.client_models:
            forest = view.client_models[TREES][victim]
        is_first = tree_count(forest) == 0
        # A client that gets a forest goes on from its base score.
        base_score = view.deltas[BASE_SCORE][victim] if is_first else view.model.get(BASE_SCORE, torch.zeros(1))
        probability = float(base_score.double().flatten()[0])
        earlier = _boxes(forest, algorithm.features)
        counts = []
        for tree in view.deltas[TREES][victim]:
            boxes = TreeBoxes.of(tree, features=algorithm.features)
            # A base score that is no probability tells nothing.
            if boxes is None or not 0 < probability < 1:
                counts.append(NodeCounts.unknown(0))
                continue
            log_odds = torch.tensor(probability, dtype=torch.float64).logit()
            margin = log_odds + margins_of_nodes(boxes, earlier)
            counts.append(self._counts_of_tree(view, victim, algorithm, boxes, margin, bool(earlier)))
            earlier.append(boxes)
        return counts

    def _counts_of_tree(
        self,
        view: RoundView,
        victim: int,
        algorithm: TreesAlgorithm,
        boxes: TreeBoxes,
        margin: Tensor,
        is_later: bool,
    ) -> NodeCounts:
        training = Training(eta=algorithm.eta, reg_lambda=algorithm.reg_lambda)
        size = int(view.example_counts[victim])
        if self.use_hessians and not boxes.is_masked:
            known_size = size if self.knows_size else None
            return counts_from_hessians(boxes, margin, training, size=known_size, own_share=not is_later)
        if is_later:
            # The weights of a later tree have different margins, and say nothing by themselves.
            return NodeCounts.unknown(len(boxes.left))
        sizes = torch.tensor([size])
        if not self.knows_size:
            sizes = torch.arange(1, self.most_rows + 1)
        return counts_from_weights(boxes, float(margin[0]), training, sizes=sizes, own_share=not self.knows_size)


def _boxes(forest: Tensor, features: int) -> list[TreeBoxes]:
    """The trees of a forest ``(M, N, 8)`` that are no padding."""
    trees = (TreeBoxes.of(tree, features=features) for tree in forest[: tree_count(forest)])
    return [tree for tree in trees if tree is not None]


def margins_of_nodes(boxes: TreeBoxes, earlier: list[TreeBoxes]) -> Tensor:
    """``(N,)`` float64 sum of the leaves of earlier trees in which each node's rows end; NaN where they differ."""
    margin = torch.zeros(len(boxes.left), dtype=torch.float64)
    for tree in earlier:
        is_open = margin.isfinite()
        if not bool(is_open.any()):
            break
        leaf = tree.only_leaf(boxes.low[is_open], boxes.high[is_open], boxes.missing[is_open])
        value = tree.threshold[leaf.clamp(min=0)].masked_fill(leaf < 0, torch.nan)
        margin[is_open] += value
    return margin
