"""FER's files of one line an image: the classes of its folders, and a fault is named by its line."""

from pathlib import Path

import pytest

from fedleak.datamodules.images.fer import FER
from tests.datamodules import image_trees as trees
from tests.datamodules.refusals import refused


@pytest.mark.parametrize("file", ["fer2013.csv", "icml_face_data.csv", "train.csv"])
def test_fers_csv_files_have_the_classes_of_its_folders(tmp_path: Path, file: str, cache: Path) -> None:
    rows = trees.fer_rows()
    trees.write_fer_csv(tmp_path / "fer2013" / file, rows)
    # The CSV file is preferred.
    trees.write_tree(tmp_path / "fer2013", trees.fer_tree())
    names = {str(code): name for name, code in trees.FER_CODES.items()}
    for _ in range(2):
        data = FER(root=str(tmp_path))
        train, test = data.read_train(), data.read_test()
        expected = {row["pixels"]: (names[row["emotion"]], row["Usage"] == "Training") for row in rows}
        for part, training in ((train, True), (test, False)):
            for image, label in zip(part.images, part.labels.tolist(), strict=True):
                name, is_training = expected.pop(" ".join(map(str, image.flatten().tolist())))
                assert data.class_names[label] == name
                assert is_training == training or file == "train.csv"
        assert not expected
    assert len(list(cache.iterdir())) == 1


def edit(column: str, value: str) -> list[dict[str, str]]:
    rows = trees.fer_rows()
    rows[4] = rows[4] | {column: value}
    return rows


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (edit("emotion", "7"), "class from 0 to 6 as emotion; found '7' in line 6"),
        (edit("emotion", ""), "class from 0 to 6 as emotion; found '' in line 6"),
        (edit("pixels", "1 2 3"), "2304 numbers from 0 to 255 as pixels; found '1 2 3' in line 6"),
        (edit("pixels", " ".join(["256"] * 2304)), "pixels; found '256 .* in line 6"),
        (edit("pixels", " ".join(["-1"] * 2304)), "pixels; found '-1 .* in line 6"),
        (edit("pixels", " ".join(["x"] * 2304)), "pixels; found 'x .* in line 6"),
        (edit("Usage", "Privat"), "'Privat' in line 6"),
        ([], "0 and 0"),
    ],
    ids=["class", "no class", "pixels", "too light", "too dark", "words", "usage", "empty"],
)
def test_a_damaged_csv_file_is_refused_with_its_line(tmp_path: Path, rows: list[dict[str, str]], found: str) -> None:
    path = tmp_path / "fer2013" / "fer2013.csv"
    trees.write_fer_csv(path, rows)
    assert str(path) in refused(FER(root=str(tmp_path)), found).found


@pytest.mark.parametrize("content", [b"", b"emotion,pixels\n1,2\n", b"\xff\xfe\0\0\0", b'emotion,pixels,Usage\n"1,2'])
def test_a_csv_file_of_another_form_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "fer2013" / "fer2013.csv"
    path.parent.mkdir()
    path.write_bytes(content)
    assert str(path) in refused(FER(root=str(tmp_path))).found
