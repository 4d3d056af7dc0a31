"""Tables with a schema: read in their layouts, encoded so that decoding gives the values, and refused by line."""

from pathlib import Path

import pytest
import torch

from fedleak.core.errors import InputError
from fedleak.core.record_hash import record_hashes
from fedleak.core.table_columns import COLUMNS, TableColumns
from fedleak.datamodules.partition.client_split import ClientSplit
from fedleak.datamodules.tables import CsvTable, LesionRecords, MovieLensUsers, SklearnTable
from fedleak.datamodules.tables.base import TableDataModule
from fedleak.datamodules.tables.schema import Column
from tests.datamodules.refusals import refused
from tests.places import REAL

FEW = ClientSplit(clients=3)
SCHEMA = (
    Column(name="age", kind="number", lowest=20, highest=80, step=0.5, missing="median"),
    Column(name="smoker", values=("yes", "no", "unknown"), missing="unknown"),
)
SITES = ("back", "face", "hand", "unknown")


def lesions(root: Path, *, more: str = "") -> LesionRecords:
    """Sixty photographs of forty lesions; the third has no age."""
    lines = ["lesion_id,image_id,dx,dx_type,age,sex,localization"]
    for image in range(60):
        lesion = image % 40
        age = "" if image == 2 else f"{5.0 * (lesion % 17)}"
        kind = ("nv", "mel", "bkl", "bcc", "akiec", "vasc", "df")[lesion % 2]
        lines.append(f"L{lesion},I{image},{kind},histo,{age},{('male', 'female')[lesion % 2]},{SITES[lesion % 4]}")
    (root / "ham10000").mkdir(exist_ok=True)
    (root / "ham10000" / "HAM10000_metadata.csv").write_text("\n".join([*lines, more]) + "\n")
    return LesionRecords(root=str(root), split=FEW, auxiliary_per_class=0)


def users(root: Path) -> MovieLensUsers:
    (root / "ml-100k").mkdir()
    jobs = "student", "writer", "none"
    lines = [f"{user}|{20 + user}|{'MF'[user % 2]}|{jobs[user % 3]}|{user:05}" for user in range(1, 31)]
    (root / "ml-100k" / "u.user").write_text("\n".join(lines) + "\n")
    return MovieLensUsers(root=str(root), split=FEW, auxiliary_per_class=1)


def csv(root: Path, *lines: str, header: str = "age,town,smoker,ill") -> CsvTable:
    rows = [f"{20 + row},T{row % 3},{('yes', 'no', '')[row % 3]},{row % 2}" for row in range(24)]
    (root / "people.csv").write_text("\n".join([header, *rows, *lines]) + "\n")
    return CsvTable(
        root=str(root),
        file="people.csv",
        schema=SCHEMA,
        label="ill",
        class_names=("0", "1"),
        split=FEW,
        auxiliary_per_class=1,
    )


def check(data: TableDataModule) -> None:
    """Rows are on the grid that the recorder hashes, and decode to their values."""
    cohort, columns = data.cohort(0), TableColumns.of(data.auxiliary().get(COLUMNS, torch.zeros(0)))
    rows = cohort.examples["image"][cohort.mask]
    assert rows.shape[1:] == data.image_shape
    exact = columns.encode(columns.decode(rows))
    assert (rows.flatten(1) - exact).abs().max() < 1e-5
    step, origin = data.record_grid
    salt = torch.zeros(16, dtype=torch.uint8)
    hashes = record_hashes(exact.reshape(rows.shape), salt, (step, origin))
    assert torch.equal(hashes, record_hashes(rows, salt, (step, origin)))
    copies = data.record_copies(rows)
    assert copies.min() >= 1


def test_lesions_have_rows_and_no_lesion_is_at_two_clients(tmp_path: Path) -> None:
    data = lesions(tmp_path)
    check(data)
    assert data.encoding.values[2, 0] == data.encoding.values[:, 0][data.encoding.values[:, 0] >= 0].median()
    assert data.read_train().groups is not None


def test_users_and_csv_have_rows(tmp_path: Path) -> None:
    check(users(tmp_path))
    data = csv(tmp_path)
    check(data)
    assert data.encoding.values[:3].tolist() == [[0, 0], [2, 1], [4, 2]]


@pytest.mark.parametrize(
    ("line", "match"),
    [("19,T,yes,0", "19"), ("30,T,perhaps,0", "perhaps"), ("x,T,yes,0", "'x'"), ("30,T,yes,2", "'2'"), ("1,2", "line")],
)
def test_fields_outside_of_the_schema_are_refused_with_their_line(tmp_path: Path, line: str, match: str) -> None:
    assert "26" in str(refused(csv(tmp_path, line), match))


def test_missing_column_is_refused(tmp_path: Path) -> None:
    refused(csv(tmp_path, header="age,town,smokes,ill"), "smoker")


@pytest.mark.parametrize(
    ("column", "match"),
    [
        ({"kind": "date"}, "kind"),
        ({"kind": "number", "lowest": 3, "highest": 3}, "lowest"),
        ({"kind": "number", "highest": 1, "step": 0.3}, "steps"),
        ({"values": ("a", "a")}, "different"),
    ],
)
def test_schema_that_is_none_is_refused(column: dict[str, object], match: str) -> None:
    with pytest.raises(InputError, match=match):
        Column(name="x", **column)  # type: ignore[arg-type]


def test_label_among_the_columns_is_refused() -> None:
    with pytest.raises(InputError, match="names"):
        CsvTable(file="x.csv", schema=SCHEMA, label="age", class_names=("0", "1"))


def test_diabetes_has_two_classes_of_about_equal_size() -> None:
    data = SklearnTable(table="diabetes", split=FEW)
    assert data.class_counts().sum() > 300
    assert data.cohort(0).examples["image"].shape[2:] == (1, 1, 10)


@pytest.mark.skipif(not (REAL / "ham10000").is_dir(), reason="needs HAM10000")
def test_all_lesions_of_the_real_set() -> None:
    data = LesionRecords(root=str(REAL), split=FEW)
    assert len(data.encoding.rows) == 10_015
    assert data.encoding.columns.possible == 3240


@pytest.mark.skipif(not (REAL / "ml-100k").is_dir(), reason="needs MovieLens-100K")
def test_all_users_of_the_real_set() -> None:
    assert len(MovieLensUsers(root=str(REAL), split=FEW).encoding.rows) == 943
