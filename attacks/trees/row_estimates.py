"""Rows of a table from trees: the estimate, and how right its rows are."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedleak.attacks.trees.estimates import rows_of, without_trees
from fedleak.core.attack import Attack
from fedleak.core.estimates import Estimate, EstimateError, Scores, check_tensor
from fedleak.core.metric import POSITIVE, SHARE, Metric
from fedleak.core.table_columns import COLUMNS, TableColumns
from fedleak.core.view import View

TOLERANCE = 0.319
"""Standard deviations of a column by which a number may be wrong."""
MOST_MATCHED = 1500
"""Rows of a client that are matched with reconstructed ones; of more, so many are drawn of both."""
_DRAW = 42
"""Seed of that drawing, and of the one where there are fewer reconstructed rows than true ones, or more."""
ACCURACY = "reconstruction-accuracy"


class RowsOfClient(NamedTuple):
    """Reconstructed rows of one client.

    Attributes:
        rows: ``(M, F)`` float64; NaN where nothing is inferred.
        labels: ``(M,)`` int64 classes, -1 if unknown.
        low: ``(M, F)`` float64 box of each row, ``low <= value < high``.
        high: ``(M, F)`` float64.
        certified: ``(M,)`` bool, whether so many rows of the class are certain to be in the box.
    """

    rows: Tensor
    labels: Tensor
    low: Tensor
    high: Tensor
    certified: Tensor

    @classmethod
    def guessed(cls, rows: Tensor, labels: Tensor) -> "RowsOfClient":
        """Rows without boxes, of which nothing is certain."""
        rows = rows.double()
        return cls(
            rows=rows,
            labels=labels.long(),
            low=torch.full_like(rows, -torch.inf),
            high=torch.full_like(rows, torch.inf),
            certified=torch.zeros(len(rows), dtype=torch.bool),
        )


@dataclass(frozen=True, kw_only=True)
class TreeRowsEstimate(Estimate):
    """Rows of the table of each client, from all of its messages.

    The accuracy is that of [DiGennaro25]: true and reconstructed rows are matched one to one by the Hungarian method,
    with as few wrong fields as possible. A number is right within 0.319 standard deviations of its column, a category
    if it is equal; the class is one of the fields. Of different numbers of rows, as many are drawn of the more. Any
    rows of the same kind have many right fields, so that only what baselines without the tree lack is leakage.

    A certificate says that so many rows of a class are in a box, in each column of which they have a value. It is false
    for each row that the box has less.

    Attributes:
        senders: ``(U,)`` int64 number in the view of the first message of each client.
        rows: ``(U, M, F)`` float64 rows, see `RowsOfClient`; padded.
        labels: ``(U, M)`` int64.
        low: ``(U, M, F)`` float64.
        high: ``(U, M, F)`` float64.
        certified: ``(U, M)`` bool.
        count: ``(U,)`` int64 rows of each client; the others are padding.

    References:
        [Vero23], section 5, for the matching and the tolerance.
    """

    inferred = "the rows of its table, field by field"
    truth = ("record_hash", "records", "record_labels", "clients")
    judged_by = (ACCURACY,)
    metrics: ClassVar[tuple[str | Metric, ...]] = (
        Metric(
            ACCURACY,
            "Reconstruction accuracy is the share of fields of a client's rows that are right, numbers to 0.319"
            " standard deviations, with the best matching of rows.",
            judged=True,
            span=SHARE,
            words="rebuilds {} of 100 fields of the rows",
            certified=(
                "certified-rows",
                "false-certified-rows",
                "the class and a range of each column, which may be wide, of {} of 100 rows",
            ),
        ),
        Metric("exact-rows", "Exact rows is the share of rows of which all fields are right so.", span=SHARE),
        Metric(
            "certified-rows",
            "Certified rows is the share of a client's rows whose class and box are certain.",
            leak=False,
            span=SHARE,
        ),
        Metric(
            "false-certified-rows",
            "False certified rows is the number of rows that are certified to be in a box that has fewer.",
            leak=False,
            lower_is_better=True,
            span=POSITIVE,
        ),
    )
    senders: Tensor
    rows: Tensor
    labels: Tensor
    low: Tensor
    high: Tensor
    certified: Tensor
    count: Tensor

    @classmethod
    def of(cls, senders: Tensor, clients: Sequence[RowsOfClient]) -> "TreeRowsEstimate":
        """The estimate of the rows of several clients."""
        return cls(
            senders=senders,
            rows=pad_sequence([client.rows for client in clients], batch_first=True),
            labels=pad_sequence([client.labels for client in clients], batch_first=True, padding_value=-1),
            low=pad_sequence([client.low for client in clients], batch_first=True),
            high=pad_sequence([client.high for client in clients], batch_first=True),
            certified=pad_sequence([client.certified for client in clients], batch_first=True),
            count=torch.tensor([len(client.rows) for client in clients]),
        )

    @classmethod
    def inapplicable(cls, view: View, truth: Collection[str]) -> str | None:
        return without_trees(view, truth)

    def check(self, view: View) -> None:
        shape = tuple(self.rows.shape)
        check_tensor("rows", self.rows, shape, finite=False)
        check_tensor("low", self.low, shape, finite=False)
        check_tensor("high", self.high, shape, finite=False)
        check_tensor("labels", self.labels, shape[:2], dtype=torch.int64)
        check_tensor("certified", self.certified, shape[:2], dtype=torch.bool)
        if len(torch.unique(view.pseudonyms[self.senders])) != len(self.senders):
            raise EstimateError("senders: expected one message of each client")

    def client(self, number: int) -> RowsOfClient:
        """Rows of one client, without padding."""
        count = int(self.count[number])
        fields = (self.rows, self.labels, self.low, self.high, self.certified)
        return RowsOfClient(*(field[number, :count] for field in fields))

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """Scores of each client; a client without reconstructed rows has no right field."""
        columns = None
        if COLUMNS in view.auxiliary:
            columns = TableColumns.of(view.auxiliary[COLUMNS])
        names = (ACCURACY, "exact-rows", "certified-rows", "false-certified-rows")
        values = torch.zeros(len(names), len(self.senders), dtype=torch.float64)
        sizes = []
        for number, sender in enumerate(self.senders.tolist()):
            rows, labels = rows_of(truth, sender)
            client = self.client(number)
            values[:2, number] = torch.tensor(accuracy(client, rows.double(), labels, columns))
            values[2, number] = client.certified.sum() / max(len(rows), 1)
            values[3, number] = false_certificates(client, rows.double(), labels)
            sizes.append(len(rows))
        return Scores(
            dict(zip(names, values, strict=True)),
            torch.tensor(sizes),
            units=truth["clients"][self.senders],
        )


def accuracy(client: RowsOfClient, rows: Tensor, labels: Tensor, columns: TableColumns | None) -> tuple[float, float]:
    """Share of right fields, and of rows of which all fields are right, of the best matching.

    Fields without a true value do not count.

    Args:
        client: the reconstructed rows.
        rows: ``(R, F)`` true rows.
        labels: ``(R,)`` their classes.
        columns: which fields are categories; None for none.
    """
    from scipy.optimize import linear_sum_assignment  # slow to import

    size = min(len(rows), len(client.rows), MOST_MATCHED)
    if size == 0:
        return 0.0, 0.0
    # The same number of both, as in the published comparison.
    draws = np.random.RandomState(_DRAW)
    chosen = draws.choice(len(rows), size, replace=False) if size < len(rows) else np.arange(size)
    guessed = draws.choice(len(client.rows), size, replace=False) if size < len(client.rows) else np.arange(size)
    true_fields, tolerances = fields_of(rows[chosen], labels[chosen], columns)
    guessed_fields, _ = fields_of(client.rows[guessed], client.labels[guessed], columns)
    has_value = ~true_fields.isnan()
    wrong = np.zeros((size, size), dtype=np.int16)
    for field, tolerance in enumerate(tolerances.tolist()):
        distance = (true_fields[:, None, field] - guessed_fields[None, :, field]).abs()
        # A comparison with NaN is False: a field that is not inferred is wrong.
        is_wrong = ~(distance <= tolerance)
        wrong += (is_wrong & has_value[:, None, field]).numpy()
    of_true, of_guessed = linear_sum_assignment(wrong)
    matched = wrong[of_true, of_guessed]
    return float(1 - matched.sum() / int(has_value.sum())), float((matched == 0).mean())


def fields_of(rows: Tensor, labels: Tensor, columns: TableColumns | None) -> tuple[Tensor, Tensor]:
    """``(R, C + 1)`` fields of rows, the class last, and by how much each may be wrong.

    A category is the number of its only input that is 1.
    """
    parts, is_category = list[Tensor](), list[bool]()
    groups = [torch.tensor([number]) for number in range(rows.shape[1])]
    if columns is not None:
        groups = columns.groups
    for inputs in groups:
        if columns is not None and bool(columns.category[inputs[0]]):
            of_inputs = rows[:, inputs]
            parts.append(of_inputs.argmax(1).double().masked_fill(of_inputs.isnan().any(1), torch.nan))
            is_category.append(True)
        else:
            parts.append(rows[:, inputs[0]])
            is_category.append(False)
    parts.append(labels.double())
    fields = torch.stack(parts, dim=1)
    # The standard deviation of the values that there are.
    deviations = fields - fields.nanmean(0)
    tolerances = TOLERANCE * deviations.square().nanmean(0).sqrt()
    return fields, tolerances.masked_fill(torch.tensor([*is_category, False]), 0.0)


def false_certificates(client: RowsOfClient, rows: Tensor, labels: Tensor) -> int:
    """How many rows are certified to be in a box, or in boxes within it, that has fewer of the class."""
    certain = client.certified.nonzero().flatten()
    boxes = torch.cat([client.low, client.high, client.labels[:, None].double()], dim=1)[certain]
    most = 0
    for box in torch.unique(boxes, dim=0):
        low, high = box[:-1].chunk(2)
        of_class = client.labels[certain] == box[-1]
        is_within = ((client.low[certain] >= low) & (client.high[certain] <= high)).all(1) & of_class
        # A certificate is about the values that a row has.
        is_inside = ((rows >= low) & (rows < high)) | rows.isnan()
        is_there = is_inside.all(1) & (labels == box[-1])
        most += max(int(is_within.sum()) - int(is_there.sum()), 0)
    return most


class TreeRowsAttack(Attack):
    """Base class of attacks that reconstruct rows from all trees of a client."""

    family = "trees"
    estimates: ClassVar[type[Estimate]] = TreeRowsEstimate
