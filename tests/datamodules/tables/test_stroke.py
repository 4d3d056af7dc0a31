"""The stroke table in its real layout, with few rows."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedleak.core.errors import InputError
from fedleak.core.table_columns import COLUMNS, TableColumns
from fedleak.datamodules.tables.stroke import Stroke


@pytest.fixture
def root(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for hospital in range(5):
        for part, count in (("train", 6 + hospital), ("valid", 8)):
            folder = tmp_path / "stroke" / "nc_5" / "data" / f"client_{hospital}" / part
            folder.mkdir(parents=True)
            rows = np.column_stack([rng.uniform(20, 90, (count, 3)).round(2), rng.integers(0, 2, (count, 7))])
            np.save(folder / f"x_{part}.npy", rows)
            np.save(folder / f"y_{part}.npy", (np.arange(count) % 2)[:, None])
    return tmp_path


def test_each_hospital_has_the_rows_of_its_files(root: Path) -> None:
    data = Stroke(root=str(root), auxiliary_per_class=3)
    cohort = data.cohort(0)
    assert cohort.counts.tolist() == [6, 7, 8, 9, 10]
    for hospital in range(5):
        file = root / "stroke" / "nc_5" / "data" / f"client_{hospital}" / "train" / "x_train.npy"
        rows = cohort.examples["image"][hospital, cohort.mask[hospital]].flatten(1)
        assert torch.equal(rows, torch.from_numpy(np.load(file)).float())
    # Of 40 rows for the validation, the attacker has three of each class.
    auxiliary = data.auxiliary()
    assert auxiliary["label"].tolist() == [0, 0, 0, 1, 1, 1]
    assert sum(len(batch["label"]) for batch in data.val_dataloader()) == 34


def test_the_columns_give_back_the_rows(root: Path) -> None:
    data = Stroke(root=str(root))
    columns = TableColumns.of(data.auxiliary()[COLUMNS])
    rows = data.rows[0].images.flatten(1)
    assert (columns.encode(columns.decode(rows)) - rows).abs().max() < 1e-3


@pytest.mark.parametrize(
    "content", [b"", b"\x93NUMPY\x01\x00damaged", None, np.zeros((6, 9)), np.full((6, 10), np.nan)]
)
def test_other_files_are_refused(root: Path, content: object) -> None:
    path = root / "stroke" / "nc_5" / "data" / "client_2" / "train" / "x_train.npy"
    path.unlink()
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, np.ndarray):
        np.save(path, content)
    with pytest.raises(InputError, match="client_2"):
        _ = Stroke(root=str(root)).num_clients


def test_objects_are_not_loaded(root: Path) -> None:
    path = root / "stroke" / "nc_5" / "data" / "client_0" / "valid" / "x_valid.npy"
    np.save(path, np.array([object()] * 8))
    with pytest.raises(InputError, match="array"):
        _ = Stroke(root=str(root)).num_clients
