"""MNIST and Fashion-MNIST in the files that torchvision reads."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

import torchvision.datasets
from torch import Tensor
from torchvision.datasets.mnist import read_image_file, read_label_file

from fedleak.core.errors import InputError, require
from fedleak.core.io.download import fetch_torchvision
from fedleak.datamodules.images.base import ClassificationDataModule, LabelledImages

CLASSES = 10
_SIZE = 28
_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_DAMAGED = (OSError, ValueError, TypeError, RuntimeError, AssertionError, KeyError, IndexError)
"""What torchvision's readers raise on a file of another form."""


class MNIST(ClassificationDataModule):
    """MNIST, grey 28 x 28 handwritten digits: 60,000 for training and 10,000 for the test.

    Files: the four unpacked files in ``root/MNIST/raw/``, from https://ossci-datasets.s3.amazonaws.com/mnist/.

    Args:
        download: download the files if they are missing, checked by hash.

    References:
        [LeCun98].
    """

    name = "MNIST"
    folders: ClassVar[tuple[str, ...]] = (name,)
    class_names = tuple(str(digit) for digit in range(CLASSES))
    image_shape = (1, _SIZE, _SIZE)
    _page = "https://ossci-datasets.s3.amazonaws.com/mnist/"
    _source: type[torchvision.datasets.MNIST] = torchvision.datasets.MNIST

    def __init__(self, *, download: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.download = download

    def prepare_data(self) -> None:
        if self.download:
            fetch_torchvision(
                self._source,
                self.data_root(),
                name=self.name,
                missing=lambda: not all((self._folder / name).is_file() for name in _FILES),
                way_out=f"Download its four files from {self._page} and unpack them into {self._folder}.",
            )

    def read_train(self) -> LabelledImages:
        return self._read("train")

    def read_test(self) -> LabelledImages:
        return self._read("t10k")

    def _read(self, part: Literal["train", "t10k"]) -> LabelledImages:
        self.prepare_data()
        images = self._file(f"{part}-images-idx3-ubyte", read_image_file)
        labels = self._file(f"{part}-labels-idx1-ubyte", read_label_file)
        require(
            images.shape == (len(labels), _SIZE, _SIZE) and len(labels) and int(labels.max()) < CLASSES,
            f"as many {_SIZE} x {_SIZE} images as labels below {CLASSES}",
            f"images {tuple(images.shape)} and labels {tuple(labels.shape)} of {part} in {self._folder}",
            f"Download the files again from {self._page}.",
        )
        return LabelledImages(images[:, None], labels)

    @property
    def _folder(self) -> Path:
        return self.data_root() / self.name / "raw"

    def _file(self, name: str, read: Callable[[str], Tensor]) -> Tensor:
        path = self._folder / name
        require(
            path.is_file(),
            f"the file {name}",
            f"nothing at {path}",
            f"Set download: true, or download it from {self._page} and unpack it there.",
        )
        try:
            return read(str(path))
        except _DAMAGED as error:
            raise InputError(
                expected=f"images or labels in the idx format in {name}",
                found=f"a damaged file at {path}",
                way_out=f"Download it again from {self._page}.",
            ) from error


class FashionMNIST(MNIST):
    """Fashion-MNIST, grey 28 x 28 pieces of clothing: 60,000 for training and 10,000 for the test.

    Files: the four unpacked files in ``root/FashionMNIST/raw/``, from https://github.com/zalandoresearch/fashion-mnist.

    References:
        [Xiao17].
    """

    name = "FashionMNIST"
    folders = (name,)
    class_names = tuple(torchvision.datasets.FashionMNIST.classes)
    _page = "https://github.com/zalandoresearch/fashion-mnist"
    _source = torchvision.datasets.FashionMNIST
