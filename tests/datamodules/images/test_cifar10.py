"""CIFAR-10's own files are read as they are, and a stranger's pickle never."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedleak.core.errors import InputError
from fedleak.datamodules.images.cifar10 import CIFAR10
from fedleak.datamodules.partition.client_split import ClientSplit
from tests.datamodules import image_trees as trees

FEW = ClientSplit(clients=3)


def test_cifars_original_files_are_read_as_they_are(tmp_path: Path, own_hashes: Callable[[Path], None]) -> None:
    trees.write_cifar(tmp_path)
    own_hashes(tmp_path)
    data = CIFAR10(root=str(tmp_path), split=FEW, auxiliary_per_class=2)
    train, test = data.read_train(), data.read_test()
    assert np.array_equal(train.images[30:60].numpy(), trees.noise(30, 3072, seed=1).reshape(30, 3, 32, 32))
    assert np.array_equal(test.images.numpy(), trees.noise(30, 3072, seed=5).reshape(30, 3, 32, 32))
    assert train.labels.bincount().tolist() == [15] * 10
    assert data.num_clients == 3


@pytest.mark.parametrize("file", ["data_batch_1", "data_batch_4", "test_batch", "batches.meta"])
def test_a_strangers_pickle_is_never_opened(tmp_path: Path, own_hashes: Callable[[Path], None], file: str) -> None:
    trees.write_cifar(tmp_path)
    own_hashes(tmp_path)
    path = tmp_path / "cifar-10-batches-py" / file
    path.write_bytes(trees.bomb(tmp_path / "it ran"))
    for read in (CIFAR10.read_train, CIFAR10.read_test):
        with pytest.raises(InputError, match="not opened") as caught:
            read(CIFAR10(root=str(tmp_path)))
        assert str(path) in caught.value.found
    assert not (tmp_path / "it ran").exists()
    # And it would have run, had the hash been the right one.
    own_hashes(tmp_path)
    read = CIFAR10.read_test if file == "test_batch" else CIFAR10.read_train
    with pytest.raises(TypeError):
        read(CIFAR10(root=str(tmp_path)))
    assert (tmp_path / "it ran").exists()
    path.unlink()
    with pytest.raises(InputError, match="nothing at"):
        CIFAR10(root=str(tmp_path)).read_train()
