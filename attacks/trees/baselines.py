"""Baselines of attacks on trees: what is known of the rows without the tree, and the tree of another client."""

import abc
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.attacks.trees.estimates import TreeCountsAttack, TreeCountsEstimate
from fedleak.attacks.trees.row_columns import PublicColumns, known_rows
from fedleak.attacks.trees.row_estimates import RowsOfClient, TreeRowsAttack, TreeRowsEstimate
from fedleak.attacks.trees.tree_counts import TreeCounts
from fedleak.client.auxiliary_images import IMAGES, LABELS
from fedleak.client.trees import BASE_SCORE, TREES, TreesAlgorithm
from fedleak.core.history import History
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_BLIND = ThreatModel(
    sees="how many examples each client reports",
    knows="rows of the same kind with their classes, as another client has them",
    needs=("sent_in", f"auxiliary:{IMAGES}", f"auxiliary:{LABELS}", TreesAlgorithm),
)


class _BlindRows(TreeRowsAttack):
    """Base class of baselines that hand in the same kind of rows for each client."""

    baseline = True
    threat_model = _BLIND

    def run(self, view: History, *, generator: torch.Generator) -> TreeRowsEstimate:
        messages = first_messages(view)
        sizes = view.example_counts[messages].tolist()
        return TreeRowsEstimate.of(messages, [self.rows(view, size, generator) for size in sizes])

    @abc.abstractmethod
    def rows(self, view: History, size: int, generator: torch.Generator) -> RowsOfClient:
        """So many rows."""


class OwnRows(_BlindRows):
    """Baseline: the adversary's own rows, drawn at random, as many as the client reports.

    A row is drawn again only when all have been.

    Threat model: a server or another client that holds rows of the same kind and does not look at the trees.

    References:
        This project.

    Example:
        >>> import torch
        >>> from fedleak.attacks.trees import OwnRows
        >>> from fedleak.attacks.trees.toy import rounds_toy
        >>> view, truth = rounds_toy()
        >>> estimate = OwnRows()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["reconstruction-accuracy"].mean()), 2)
        0.56
    """

    name = "own-rows"

    def rows(self, view: History, size: int, generator: torch.Generator) -> RowsOfClient:
        rows, labels = known_rows(view)
        drawn = drawn_rows(len(rows), size, generator)
        return RowsOfClient.guessed(rows[drawn], labels[drawn])


class OwnColumns(_BlindRows):
    """Baseline: each column is drawn from the adversary's own rows, independently of all others.

    Threat model: that of `OwnRows`.

    References:
        This project.

    Example:
        >>> import torch
        >>> from fedleak.attacks.trees import OwnColumns
        >>> from fedleak.attacks.trees.toy import rounds_toy
        >>> view, truth = rounds_toy()
        >>> estimate = OwnColumns()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["reconstruction-accuracy"].mean()), 2)
        0.56
    """

    name = "own-columns"

    def rows(self, view: History, size: int, generator: torch.Generator) -> RowsOfClient:
        known, known_labels = known_rows(view)
        rows = torch.empty(size, known.shape[1], dtype=torch.float64)
        for inputs in PublicColumns.of(view).groups:
            # The inputs of a category stay together.
            drawn = drawn_rows(len(known), size, generator)
            rows[:, inputs] = known[drawn][:, inputs]
        return RowsOfClient.guessed(rows, known_labels[drawn_rows(len(known), size, generator)])


class MajorityFields(_BlindRows):
    """Baseline: all rows have the medians of numbers and the most common categories of the adversary's own rows.

    Threat model: that of `OwnRows`.

    References:
        This project.

    Example:
        >>> import torch
        >>> from fedleak.attacks.trees import MajorityFields
        >>> from fedleak.attacks.trees.toy import rounds_toy
        >>> view, truth = rounds_toy()
        >>> estimate = MajorityFields()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["reconstruction-accuracy"].mean()), 2)
        0.24
    """

    name = "majority-fields"

    def rows(self, view: History, size: int, generator: torch.Generator) -> RowsOfClient:
        known, known_labels = known_rows(view)
        row = torch.empty(known.shape[1], dtype=torch.float64)
        columns = PublicColumns.of(view)
        for column, inputs in enumerate(columns.groups):
            if bool(columns.is_category[column]):
                row[inputs] = 0.0
                row[inputs[known[:, inputs].sum(0).argmax()]] = 1.0
            else:
                row[inputs] = known[:, inputs].median(0).values
        labels = known_labels.mode().values.expand(size)
        return RowsOfClient.guessed(row.expand(size, -1).clone(), labels.clone())


@dataclass(frozen=True, kw_only=True)
class EvenCounts(TreeCountsAttack):
    """Baseline: each line of a tree has an equal share of the rows, half of them positive.

    Threat model: a server that knows how large trees may be and how many examples a client reports, and does not look
    at the trees.

    References:
        This project.

    Example:
        >>> import torch
        >>> from fedleak.attacks.trees import EvenCounts
        >>> from fedleak.attacks.trees.toy import toy
        >>> view, truth = toy()
        >>> estimate = EvenCounts()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["exact-nodes"].mean()), 2)
        0.02
    """

    name = "even-counts"
    baseline = True
    threat_model = ThreatModel(
        sees="how many examples the client reports",
        knows="the largest size of a tree",
        needs=(f"deltas:{TREES}", TreesAlgorithm),
    )

    def run(self, view: RoundView, *, generator: torch.Generator) -> TreeCountsEstimate:
        shape = view.deltas[TREES].shape[:3]
        depths = (torch.arange(shape[2]) + 1).log2().floor()
        # A tree without gaps has twice as many nodes on each level, each with half as many rows.
        rows = (view.example_counts[:, None, None] / 2**depths).round().long().expand(shape)
        return TreeCountsEstimate(rows=rows, positives=rows // 2, certified=torch.zeros(shape, dtype=torch.bool))


@dataclass(frozen=True, kw_only=True)
class UnrelatedTree(TreeCountsAttack):
    """Control: the counts that another client's trees have, taken for those of the client.

    Threat model: that of `TreeCounts`.

    References:
        This project.

    Example:
        >>> import torch
        >>> from fedleak.attacks.trees import UnrelatedTree
        >>> from fedleak.attacks.trees.toy import toy
        >>> view, truth = toy()
        >>> estimate = UnrelatedTree()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["exact-nodes"].mean()), 2)
        0.02
    """

    name = "unrelated-tree"
    baseline = True
    control = True
    of_others = True
    threat_model: ClassVar[ThreatModel] = ThreatModel(
        sees="the trees of other clients",
        knows="the learning rate and lambda of the job",
        needs=(f"deltas:{TREES}", f"deltas:{BASE_SCORE}", f"model:{TREES}", TreesAlgorithm),
    )

    def run(self, view: RoundView, *, generator: torch.Generator) -> TreeCountsEstimate:
        estimate = TreeCounts()(view, generator=generator)
        assert isinstance(estimate, TreeCountsEstimate)
        rows, positives = (_of_another(counts, view) for counts in (estimate.rows, estimate.positives))
        return TreeCountsEstimate(rows=rows, positives=positives, certified=torch.zeros_like(rows, dtype=torch.bool))


def _of_another(counts: Tensor, view: RoundView) -> Tensor:
    """Counts of the client before each; nothing where there is only one."""
    if view.victims < 2:
        return torch.full_like(counts, -1)
    return counts.roll(1, 0)


def first_messages(view: History) -> Tensor:
    """``(U,)`` number of the first message of each client, in the order of messages."""
    first: dict[int, int] = {}
    for number in view.sent_in.argsort(stable=True).tolist():
        first.setdefault(int(view.pseudonyms[number]), number)
    return torch.tensor(list(first.values()))


def drawn_rows(available: int, size: int, generator: torch.Generator) -> Tensor:
    """``(size,)`` numbers of rows, each as often as any other to within one."""
    repeats = -(-size // available)
    parts = [torch.randperm(available, generator=generator) for _ in range(repeats)]
    return torch.cat([*parts, torch.zeros(0, dtype=torch.int64)])[:size]
