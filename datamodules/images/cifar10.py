"""CIFAR-10: its owners' files, or JPEG images by class."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
import torchvision.datasets
from torchvision.datasets.utils import check_integrity

from fedleak.core.errors import InputError, require
from fedleak.core.io.download import fetch_torchvision
from fedleak.datamodules.images.base import ClassificationDataModule, LabelledImages
from fedleak.datamodules.images.image_files import files_by_class, read_images, trees

_PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"


class CIFAR10(ClassificationDataModule):
    """CIFAR-10, colour 32 x 32 photographs of ten classes: 50,000 for training and 10,000 for the test.

    Files: ``root/cifar-10-batches-py/`` from https://www.cs.toronto.edu/~kriz/cifar.html, or else
    ``root/cifar10/{train,test}/CLASS/*`` or a zip file of that form in ``root/cifar10/``; JPEG files do not have the
    original pixels. The original files are pickles, which can run code: they are opened only if all have the md5 of
    their owners' files.

    Args:
        download: download the original files if they are missing, checked by hash.

    References:
        [Krizhevsky09].
    """

    name = "cifar10"
    folders = (name,)
    class_names: Sequence[str] = (
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    )
    image_shape = (3, 32, 32)

    def __init__(self, *, download: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.download = download

    def prepare_data(self) -> None:
        if self.download:
            fetch_torchvision(
                torchvision.datasets.CIFAR10,
                self.data_root(),
                name="CIFAR-10",
                missing=lambda: not self._originals.is_dir(),
                way_out=f"Download the Python version from {_PAGE} and unpack it into {self.data_root()}.",
            )

    def read_train(self) -> LabelledImages:
        return self._read("train")

    def read_test(self) -> LabelledImages:
        return self._read("test")

    @property
    def _originals(self) -> Path:
        return self.data_root() / "cifar-10-batches-py"

    def _read(self, part: Literal["train", "test"]) -> LabelledImages:
        self.prepare_data()
        if self._originals.is_dir():
            return self._read_originals(part)
        for tree in trees(self.data_root() / self.name):
            if tree.joinpath(part).is_dir():
                files, labels = files_by_class(tree.joinpath(part), self.class_names)
                images = read_images(files, self.image_shape, resized=False, name=self.name)
                return LabelledImages(images, labels)
        raise InputError(
            expected=f"CIFAR-10 at {self._originals}",
            found="no such folder",
            way_out=f"Set download: true, or unpack the Python version from {_PAGE} in the data folder.",
        )

    def _read_originals(self, part: Literal["train", "test"]) -> LabelledImages:
        source = torchvision.datasets.CIFAR10
        # The files are pickles, which may hold code: none is opened unless its hash is the owners'.
        hashed_files = [*source.train_list, *source.test_list, (source.meta["filename"], source.meta["md5"])]
        for name, md5 in hashed_files:
            path = self._originals / name
            require(
                check_integrity(path, md5),
                f"{name} with md5 {md5}",
                f"another file at {path}" if path.is_file() else f"nothing at {path}",
                f"It is not opened. Download the Python version again from {_PAGE}.",
            )
        data = source(root=self.data_root(), train=part == "train")
        channels_first = torch.from_numpy(data.data).permute(0, 3, 1, 2).contiguous()
        return LabelledImages(channels_first, torch.tensor(data.targets))
