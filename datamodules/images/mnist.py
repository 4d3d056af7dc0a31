"""MNIST (LeCun 1998) and Fashion-MNIST (Xiao 2017) in the files that torchvision reads."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torchvision.datasets
from torch import Tensor
from torchvision.datasets.mnist import read_image_file, read_label_file

from datamodules.images.base import ClassificationDataModule, LabelledImages
from datamodules.io.download import fetch_once
from protocol.errors import InputError

CLASSES = 10
_SIZE = 28
_FILES = tuple(f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
_DAMAGED = (OSError, ValueError, TypeError, RuntimeError, AssertionError, KeyError, IndexError)
"""What torchvision's readers raise on a file of another form."""


class _IdxDataModule(ClassificationDataModule):
    """Ten classes of grey 28 x 28 images in ``root/NAME/raw/``.

    Args:
        download: fetch what is missing, checked by hash.
    """

    image_shape = (1, _SIZE, _SIZE)
    _page: str
    _source: type[torchvision.datasets.MNIST]

    def __init__(self, *, download: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.download = download

    def prepare_data(self) -> None:
        """Downloads what is missing, on one process."""
        if self.download:
            self._fetch()

    def read_train(self) -> LabelledImages:
        return self._read("train")

    def read_test(self) -> LabelledImages:
        return self._read("t10k")

    def _read(self, part: Literal["train", "t10k"]) -> LabelledImages:
        if self.download:
            self._fetch()
        images = self._file(f"{part}-images-idx3-ubyte", read_image_file)
        labels = self._file(f"{part}-labels-idx1-ubyte", read_label_file)
        right = images.shape == (len(labels), _SIZE, _SIZE) and len(labels) and int(labels.max()) < CLASSES
        if not right:
            raise InputError(
                expected=f"as many {_SIZE} x {_SIZE} images as labels below {CLASSES}",
                found=f"images {tuple(images.shape)} and labels {tuple(labels.shape)} of {part} in {self._folder}",
                way_out=f"Fetch the files again from {self._page}.",
            )
        return LabelledImages(images[:, None], labels)

    @property
    def _folder(self) -> Path:
        return self.data_root() / self.name / "raw"

    def _file(self, name: str, read: Callable[[str], Tensor]) -> Tensor:
        path = self._folder / name
        if not path.is_file():
            raise InputError(
                expected=f"the file {name}",
                found=f"nothing at {path}",
                way_out=f"Set download: true, or fetch it from {self._page} and unpack it there.",
            )
        try:
            return read(str(path))
        except _DAMAGED as error:
            raise InputError(
                expected=f"images or labels in the idx format in {name}",
                found=f"a damaged file at {path}",
                way_out=f"Fetch it again from {self._page}.",
            ) from error

    def _fetch(self) -> None:
        try:
            fetch_once(
                self.name,
                self.data_root(),
                missing=lambda: not all((self._folder / name).is_file() for name in _FILES),
                fetch=lambda: self._source(root=self.data_root(), download=True),
            )
        except (OSError, RuntimeError) as error:
            raise InputError(
                expected=f"{self.name} from its origin",
                found=str(error).strip(),
                way_out=f"Fetch its four files from {self._page} and unpack them into {self._folder}.",
            ) from error


class MNIST(_IdxDataModule):
    """Handwritten digits, 60,000 and 10,000 for the test; other arguments are those of `ClassificationDataModule`.

    Reads ``root/MNIST/raw/``.

    Args:
        download: fetch what is missing, checked by hash.
    """

    name = "MNIST"
    folders = (name,)
    _page = "https://ossci-datasets.s3.amazonaws.com/mnist/"
    _source = torchvision.datasets.MNIST
    class_names = tuple(str(digit) for digit in range(CLASSES))


class FashionMNIST(_IdxDataModule):
    """Pieces of clothing, 60,000 and 10,000 for the test; other arguments are those of `ClassificationDataModule`.

    Reads ``root/FashionMNIST/raw/``.

    Args:
        download: fetch what is missing, checked by hash.
    """

    name = "FashionMNIST"
    folders = (name,)
    _page = "https://github.com/zalandoresearch/fashion-mnist"
    _source = torchvision.datasets.FashionMNIST
    class_names = tuple(torchvision.datasets.FashionMNIST.classes)
