"""Rows of a client from the boxes of all its trees, filled with what similar rows have there, with certificates."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.attacks.trees.node_counts import NodeCounts, Training, counts_from_hessians, counts_from_weights
from fedleak.attacks.trees.row_certificates import Certificate, first_tree_certificates, second_tree_certificates
from fedleak.attacks.trees.row_columns import PublicColumns, known_rows
from fedleak.attacks.trees.row_estimates import RowsOfClient, TreeRowsAttack, TreeRowsEstimate
from fedleak.attacks.trees.row_weights import OTHER_CLASS, Candidates, fitted_numbers, sums_of_trees, whole_numbers
from fedleak.attacks.trees.timberstrike import MOST_ROWS, logistic, nothing
from fedleak.attacks.trees.tree_boxes import TreeBoxes
from fedleak.attacks.trees.tree_messages import ClientTrees, trees_of_clients
from fedleak.client.auxiliary_images import IMAGES, LABELS
from fedleak.client.trees import TreesAlgorithm
from fedleak.core.attack import Variants
from fedleak.core.errors import ViewError
from fedleak.core.history import History
from fedleak.core.largest_remainders import largest_remainders
from fedleak.core.ranges import PositiveInt
from fedleak.core.threat_model import ThreatModel


@dataclass(frozen=True)
class _Known:
    """Rows of the adversary, and what is public about the columns."""

    columns: PublicColumns
    rows: Tensor
    labels: Tensor

    def candidates(self, boxes: TreeBoxes, counts: Tensor) -> Candidates:
        """The known rows with both classes and, for leaves with more rows, the nearest ones moved into them.

        Args:
            boxes: the first tree.
            counts: ``(N, 2)`` numbers of rows of each class in its nodes.
        """
        leaf = boxes.leaf_of(self.rows)
        rows, classes, leaves = [self.rows], [self.labels], [leaf]
        for sparse in boxes.is_leaf.nonzero().flatten().tolist():
            missing = int(counts[sparse].sum()) - int((leaf == sparse).sum())
            if missing > 0:
                chosen = self._nearest(boxes.low[sparse], boxes.high[sparse], leaf != sparse)[:missing]
                low, high = (side[sparse].expand(len(chosen), -1) for side in (boxes.low, boxes.high))
                rows.append(self.columns.into_box(self.rows[chosen], low, high))
                classes.append(self.labels[chosen])
                leaves.append(torch.full_like(chosen, sparse))
        row, known_class, leaf = torch.cat(rows), torch.cat(classes), torch.cat(leaves)
        label = torch.tensor([0, 1]).repeat_interleave(len(row))
        likely = torch.where(label == known_class.repeat(2), 1.0, OTHER_CLASS).double()
        leaf = leaf.repeat(2)
        # All candidates of a leaf and a class stand for its rows together.
        together = torch.zeros(len(boxes.left), 2, dtype=torch.float64).index_put((leaf, label), likely, True)
        prior = likely / together[leaf, label] * counts[leaf, label]
        return Candidates(row.repeat(2, 1), label, leaf, prior)

    def _nearest(self, low: Tensor, high: Tensor, among: Tensor) -> Tensor:
        """Numbers of the known rows in a mask ``(K,)``, those that are nearest to a box ``(F,)`` first."""
        spread = self.rows.std(0, correction=0).clamp(min=1e-9)
        outside = (low - self.rows).clamp(min=0) + (self.rows - high).clamp(min=0)
        distance = (outside / spread).sum(1).masked_fill(~among, torch.inf)
        return distance.argsort(stable=True)[: int(among.sum())]


@dataclass(frozen=True, kw_only=True)
class TreeRows(TreeRowsAttack):
    """Rows of a client as whole numbers of boxes that all of its trees together leave, filled from similar rows.

    1. The leaves of the first tree have the numbers of rows of each class of `TreeCounts`, also where sums of Hessians
       are masked.
    2. Candidates are the rows of the adversary, each with either class. A candidate is a point: its leaf in every tree,
       and so its gradient and Hessian before each tree of the client, are known, whoever sent the trees in between.
    3. How many rows a candidate stands for are numbers of at least 0 that give the leaves of the first tree their
       numbers and those of the later trees their sums, to about one row, and else stay near to equal ones: a quadratic
       program. Where Hessians are masked, the weight of a leaf is still an equation of its sums.
    4. Numbers are rounded to whole ones for each leaf and class of the first tree.

    Certificates. The numbers of the first tree are certain if `TreeCounts` certifies them. The boxes that no tree
    before the client's second one divides have one margin, so that the sums of both trees are linear in the numbers of
    rows of each box and class. For each leaf of one and of the other tree, the least number over all solutions is
    certain: a linear program bounds it, and the bound is rounded up. It is bounded in size: 1,000 boxes, 100 programs
    for each client; beyond, certificates are those of the first tree. A certificate is about the values that a row has;
    one that is missing may be in any box. It takes for granted what those of `TreeCounts` do, such as rows of weight 1.

    Threat model: as `TimberStrike`, and it holds rows of the same kind with their classes, as another client does.

    Args:
        most_trees: number of trees of each client that are read.
        use_hessians: whether sums of Hessians are read where they are not masked.
        certifies_second: whether the second tree is used for certificates.

    Variants:
        masked: sums of Hessians are not read, as from a sender who masks them.

    Raises:
        ViewError: the clients learn another objective, or declare to draw rows.

    References:
        This project. The integer program is that of [DiGennaro25].

    Example:
        >>> import torch
        >>> from fedleak.attacks.trees import TreeRows
        >>> from fedleak.attacks.trees.toy import rounds_toy
        >>> view, truth = rounds_toy()
        >>> estimate = TreeRows()(view, generator=torch.Generator().manual_seed(0))
        >>> metrics = estimate.score(view, truth).metrics
        >>> round(float(metrics["reconstruction-accuracy"].mean()), 2), float(metrics["false-certified-rows"].sum())
        (0.66, 0.0)
    """

    name = "tree-rows"
    certifies = True
    cost = "seconds per victim"
    threat_model = ThreatModel(
        sees="the trees that each client sends in all rounds, and its base score",
        knows="the learning rate and lambda of the job, how many examples the client reports, and similar rows",
        needs=("deltas", "sent_in", f"auxiliary:{IMAGES}", f"auxiliary:{LABELS}", TreesAlgorithm),
    )
    variants: ClassVar[Variants] = {"masked": {"use_hessians": False}}

    most_trees: PositiveInt = 20
    use_hessians: bool = True
    certifies_second: bool = True

    def run(self, view: History, *, generator: torch.Generator) -> TreeRowsEstimate:
        algorithm = logistic(view)
        if algorithm.subsample < 1:
            raise ViewError(f"expected clients that use all rows, got a drawing of {algorithm.subsample:g} of them")
        known = _Known(PublicColumns.of(view), *known_rows(view))
        clients = trees_of_clients(view, algorithm, self.most_trees)
        reconstructed = [self._rows_of(client, algorithm, known, generator) for client in clients]
        return TreeRowsEstimate.of(torch.tensor([client.message for client in clients]), reconstructed)

    def _rows_of(
        self, client: ClientTrees, algorithm: TreesAlgorithm, known: _Known, generator: torch.Generator
    ) -> RowsOfClient:
        features = known.rows.shape[1]
        if not client.trees or not 0 < client.trees[0].base_score < 1:
            return nothing(features)
        is_masked = not self.use_hessians or client.trees[0].boxes.is_masked
        counts = self._counts(client, algorithm, is_masked)
        leaves = client.trees[0].boxes.is_leaf
        if not 0 < int(counts.rows[leaves].clamp(min=0).sum()) <= MOST_ROWS:
            return nothing(features)
        positives = counts.positives.clamp(min=0)
        of_classes = torch.stack([counts.rows.clamp(min=0) - positives, positives], dim=1)
        if not bool(counts.certified.all()):
            of_classes = _of_all_rows(of_classes, leaves, client.examples)
        candidates = known.candidates(client.trees[0].boxes, of_classes)
        numbers = candidates.prior
        if len(client.trees) > 1:
            sums = sums_of_trees(candidates, client.trees, algorithm, is_masked)
            numbers = fitted_numbers(candidates, client.trees[0].boxes, of_classes, sums)
        certificates: list[Certificate] = []
        # On a forest, rows have different margins.
        if bool(counts.certified.all()) and not client.trees[0].before:
            certificates = self._certificates(client, of_classes, algorithm, is_masked)
        return _filled(candidates, numbers, of_classes, client, certificates, generator)

    def _counts(self, client: ClientTrees, algorithm: TreesAlgorithm, is_masked: bool) -> NodeCounts:
        first = client.trees[0]
        training = Training(eta=algorithm.eta, reg_lambda=algorithm.reg_lambda)
        margin = torch.tensor(first.base_score, dtype=torch.float64).logit()
        if is_masked:
            sizes = torch.tensor([client.examples])
            return counts_from_weights(first.boxes, float(margin), training, sizes=sizes, own_share=False)
        margins = margin.expand(len(first.boxes.left))
        return counts_from_hessians(first.boxes, margins, training, size=client.examples, own_share=False)

    def _certificates(
        self, client: ClientTrees, of_classes: Tensor, algorithm: TreesAlgorithm, is_masked: bool
    ) -> list[Certificate]:
        first = client.trees[0]
        certificates = first_tree_certificates(first.boxes, of_classes)
        if not self.certifies_second or len(client.trees) < 2:
            return certificates
        both = second_tree_certificates(
            first, client.trees[1], of_classes, algorithm, is_masked or client.trees[1].boxes.is_masked
        )
        if both is None:
            # The trees contradict each other, so that something declared is wrong.
            return []
        return [*both, *certificates]


def _of_all_rows(counts: Tensor, leaves: Tensor, size: int) -> Tensor:
    """``(N, 2)`` numbers of rows of each class in the leaves in the same proportions, for so many rows together.

    A first tree on a forest of others, as all but the first client's in cyclic training, has numbers that are not
    whole, and only near to what they would be without these trees.
    """
    of_leaves = counts[leaves].double()
    shares = of_leaves.flatten()[None] / of_leaves.sum().clamp(min=1)
    scaled = torch.zeros_like(counts)
    scaled[leaves] = largest_remainders(shares, torch.tensor([size])).reshape(-1, 2)
    return scaled


def _filled(
    candidates: Candidates,
    numbers: Tensor,
    counts: Tensor,
    client: ClientTrees,
    certificates: list[Certificate],
    generator: torch.Generator,
) -> RowsOfClient:
    """Candidates as often as they are, each with the box and class of a certificate as far as these go."""
    times = torch.zeros(len(numbers), dtype=torch.int64)
    for leaf, label in torch.unique(torch.stack([candidates.leaf, candidates.label], dim=1), dim=0).tolist():
        chosen = ((candidates.leaf == leaf) & (candidates.label == label)).nonzero().flatten()
        times[chosen] = whole_numbers(numbers[chosen], int(counts[leaf, label]), generator)
    rows = candidates.rows.repeat_interleave(times, dim=0)
    leaf, labels = (field.repeat_interleave(times) for field in (candidates.leaf, candidates.label))
    first = client.trees[0].boxes
    low, high = first.low[leaf], first.high[leaf]
    second = torch.full_like(leaf, -1)
    if len(client.trees) > 1:
        second = client.trees[1].boxes.leaf_of(rows)
    certified = torch.zeros(len(leaf), dtype=torch.bool)
    # What is certain of a leaf of the first tree includes what is certain of its parts, which come first.
    for certificate in certificates:
        is_meant = (leaf == certificate.leaf) & (labels == certificate.label)
        if certificate.second_leaf >= 0:
            is_meant &= second == certificate.second_leaf
        chosen = (is_meant & ~certified).nonzero().flatten()[: certificate.count]
        certified[chosen] = True
        low[chosen], high[chosen] = certificate.low, certificate.high
    return RowsOfClient(rows, labels, low, high, certified)
