"""IDX files: read exactly, and refused with a name where they are damaged."""

from pathlib import Path

import numpy as np
import pytest

from fedleak.datamodules.images.mnist import MNIST
from tests.datamodules import image_trees as trees
from tests.datamodules.refusals import refused


def test_idx_files_are_read_as_they_are(tmp_path: Path) -> None:
    trees.write_idx(tmp_path)
    train, test = (part(MNIST(root=str(tmp_path))) for part in (MNIST.read_train, MNIST.read_test))
    assert np.array_equal(train.images.numpy()[:, 0], trees.noise(120, 28, 28))
    assert np.array_equal(test.images.numpy()[:, 0], trees.noise(30, 28, 28, seed=1))
    assert train.labels[:12].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]


@pytest.mark.parametrize("damage", [b"", b"\0\0", b"no idx file, but long enough to have a header"])
@pytest.mark.parametrize("file", ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"])
def test_a_damaged_idx_file_is_named(tmp_path: Path, file: str, damage: bytes) -> None:
    trees.write_idx(tmp_path)
    path = tmp_path / "MNIST" / "raw" / file
    path.write_bytes(damage)
    assert str(path) in refused(MNIST(root=str(tmp_path))).found


def test_idx_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    trees.write_idx(tmp_path)
    folder = tmp_path / "MNIST" / "raw"
    path = folder / "train-images-idx3-ubyte"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    refused(MNIST(root=str(tmp_path)), "train-images")
    path.write_bytes((folder / "t10k-images-idx3-ubyte").read_bytes())
    refused(MNIST(root=str(tmp_path)), "labels")
