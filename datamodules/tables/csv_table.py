"""Any CSV file with a schema of the user's."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedleak.core.errors import require
from fedleak.core.io.tables import TEXT, read_table
from fedleak.datamodules.tables.base import TableDataModule
from fedleak.datamodules.tables.schema import Column


class CsvTable(TableDataModule):
    """A table in a CSV file whose first line names the columns, with a schema of the user's.

    Args:
        file: path of the file, below ``root`` if it is not absolute.
        schema: the columns that the network gets, see `fedleak.datamodules.tables.schema.Column`; the file may have
            more.
        label: name of the column that holds the class.
        class_names: all classes.
        group: name of a column; no two clients have rows with the same text in it, e.g. of one person. None if every
            row is a group.

    Raises:
        InputError: the file lacks a column, or a field is outside of the schema; the error names the line.
    """

    folders = ("csv-table",)

    def __init__(
        self,
        *,
        file: str,
        schema: Sequence[Column],
        label: str,
        class_names: Sequence[str],
        group: str | None = None,
        auxiliary_per_class: int = 10,
        **kwargs: Any,
    ) -> None:
        super().__init__(auxiliary_per_class=auxiliary_per_class, **kwargs)
        names = [column.name for column in schema]
        require(
            len({*names, label}) == len(names) + 1 and len(names) > 0,
            "columns of different names, without the label",
            f"{names}, label {label}",
            "Correct them.",
        )
        self.name = Path(file).stem
        self.file = file
        self.schema = schema
        self.label = label
        self.class_names = class_names
        self.group = group

    def read_rows(self) -> tuple[Tensor, Tensor, Tensor | None]:
        path = Path(self.file)
        if not path.is_absolute():
            path = self.data_root() / self.file
        return read_schema(path, self.schema, self.label, self.class_names, group=self.group, page="its source")


def read_schema(
    path: Path,
    schema: Sequence[Column],
    label: str,
    classes: Sequence[str],
    *,
    group: str | None = None,
    page: str,
    separator: str = ",",
    names: Sequence[str] | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Values ``(N, C)``, classes ``(N,)`` and groups ``(N,)`` or None, see `TableDataModule.read_rows`.

    Args:
        path: a delimited file.
        schema: columns of the rows.
        label: name of the column of the class.
        classes: all classes.
        group: name of the column of the group, None for no groups.
        page: where to get the file.
        separator: delimiter.
        names: all columns of a file without a first line that names them.
    """
    fields = {column.name: column.field for column in schema}
    fields[label] = Column(name=label, values=classes).field
    if group is not None:
        fields[group] = TEXT
    if names is not None:
        # Without a header, every column of the file must be named, in order; the others are read as text.
        fields = {name: fields.get(name, TEXT) for name in names}
    columns, _ = read_table(path, fields, page=page, separator=separator, header=names is None)
    values = torch.tensor([columns[column.name] for column in schema], dtype=torch.int64).T.contiguous()
    groups = None
    if group is not None:
        # Groups are numbered in the order in which they come first.
        distinct_groups = dict.fromkeys(columns[group])
        number_of = {text: number for number, text in enumerate(distinct_groups)}
        groups = torch.tensor([number_of[text] for text in columns[group]])
    return values, torch.tensor(columns[label], dtype=torch.int64), groups
