"""Base classes of tables: rows of people with a class, and those with a schema."""

import abc
import functools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedleak.core.table_columns import COLUMNS
from fedleak.datamodules.images.base import ClassificationDataModule, LabelledImages, split_test
from fedleak.datamodules.tables.schema import Column, Encoding, encode


class RowsDataModule(ClassificationDataModule):
    """Clients with rows of a table. A subclass gives `rows`, all of them divided into training and test."""

    rows: tuple[LabelledImages, LabelledImages]

    def read_train(self) -> LabelledImages:
        return self.rows[0]

    def read_test(self) -> LabelledImages:
        return self.rows[1]

    @staticmethod
    def _examples(source: LabelledImages, numbers: Tensor) -> dict[str, Tensor]:
        return {"image": source.images[numbers], "label": source.labels[numbers]}


class TableDataModule(RowsDataModule):
    """Clients with rows of a table, which has a schema. A subclass gives the schema and reads the rows.

    A row is an image of one line for the networks: numbers standardised by the mean and the standard deviation of the
    whole table, then one-hot groups, in the order of the schema. The server knows the schema, as it defines the
    network's inputs, and a few rows of each class. A fifth of the rows is for the test.

    Attributes:
        schema: the columns.
    """

    schema: Sequence[Column]

    @abc.abstractmethod
    def read_rows(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Values ``(N, C)`` of all rows as of `Column.field`, classes ``(N,)``, and groups ``(N,)`` or None."""

    @property
    def image_shape(self) -> tuple[int, int, int]:  # type: ignore[override]
        """One line of as many numbers as the network has inputs."""
        inputs = 0
        for column in self.schema:
            # A category has an input for each of its values.
            inputs += 1 if column.kind == "number" else column.size
        return (1, 1, inputs)

    @property
    def record_grid(self) -> tuple[Tensor, Tensor]:
        """Step and origin ``(1, 1, D)`` of the inputs."""
        columns = self.encoding.columns
        return columns.step.reshape(self.image_shape), columns.origin.reshape(self.image_shape)

    def record_copies(self, records: Tensor) -> Tensor:
        """``(M,)`` number of rows of the whole table that equal each of ``records (M, 1, 1, D)``."""
        distinct_rows, counts = np.unique(self.encoding.values.numpy(), axis=0, return_counts=True)
        # Rows are looked up by their bytes.
        copies_of_row = {}
        for row, count in zip(distinct_rows, counts, strict=True):
            copies_of_row[row.tobytes()] = int(count)
        values = self.encoding.columns.decode(records).numpy()
        copies = [copies_of_row.get(row.tobytes(), 0) for row in values]
        return torch.tensor(copies, dtype=torch.int64)

    def auxiliary(self) -> dict[str, Tensor]:
        """The attacker's rows and classes, and the description of the columns, see `fedleak.core.table_columns`."""
        return {**super().auxiliary(), COLUMNS: self.encoding.columns.tensor}

    @functools.cached_property
    def _rows(self) -> tuple[Tensor, Tensor, Tensor | None]:
        return self.read_rows()

    @functools.cached_property
    def encoding(self) -> Encoding:
        """All rows as vectors."""
        return encode(self.schema, self._rows[0])

    @functools.cached_property
    def rows(self) -> tuple[LabelledImages, LabelledImages]:  # type: ignore[override]
        """Rows for the training and for the test."""
        _, labels, groups = self._rows
        vectors = self.encoding.rows.float().reshape(-1, *self.image_shape)
        table = LabelledImages(vectors, labels, groups)
        return split_test(table, class_names=self.class_names, fraction=0.2, seed=self.seed)
