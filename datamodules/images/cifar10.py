"""CIFAR-10 (Krizhevsky 2009): its owners' files, or JPEG images by class."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
import torchvision.datasets
from torchvision.datasets.utils import check_integrity

from datamodules.images.base import ClassificationDataModule, LabelledImages
from datamodules.images.image_files import files_by_class, read_images, trees
from datamodules.io.download import fetch_once
from protocol.errors import InputError

_PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
_ORIGINALS = "cifar-10-batches-py"
_Part = Literal["train", "test"]


class CIFAR10(ClassificationDataModule):
    """Colour photographs of ten classes, 50,000 and 10,000 for the test, 32 x 32.

    Reads ``root/cifar-10-batches-py/``; where that is missing ``root/cifar10/{train,test}/CLASS/`` or a zip file of
    that form in ``root/cifar10/``, whose pixels are not the original ones if they are JPEG. The original files are
    pickles, which can run code: one is opened only if all have the md5 of their owners' files. The other arguments are
    those of `ClassificationDataModule`.

    Args:
        download: fetch the original files where they are missing, checked by hash.
    """

    name = "cifar10"
    folders = (name,)
    class_names: Sequence[str] = (
        *("airplane", "automobile", "bird", "cat", "deer"),
        *("dog", "frog", "horse", "ship", "truck"),
    )
    image_shape = (3, 32, 32)

    def __init__(self, *, download: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.download = download

    def prepare_data(self) -> None:
        """Downloads what is missing, on one process."""
        self._fetch()

    def read_train(self) -> LabelledImages:
        return self._read("train")

    def read_test(self) -> LabelledImages:
        return self._read("test")

    def _read(self, part: _Part) -> LabelledImages:
        self._fetch()
        if self._originals.is_dir():
            return self._read_originals(part)
        folder = self.data_root() / self.name
        for tree in trees(folder) if folder.is_dir() else []:
            if tree.joinpath(part).is_dir():
                files, labels = files_by_class(tree.joinpath(part), self.class_names)
                return LabelledImages(read_images(files, self.image_shape, resized=False, name=self.name), labels)
        raise InputError(
            expected=f"CIFAR-10 at {self._originals}",
            found="nothing there",
            way_out=f"Set download: true, or fetch the Python version from {_PAGE} and unpack it in the data folder.",
        )

    @property
    def _originals(self) -> Path:
        return self.data_root() / _ORIGINALS

    def _read_originals(self, part: _Part) -> LabelledImages:
        source = torchvision.datasets.CIFAR10
        for name, md5 in [*source.train_list, *source.test_list, (source.meta["filename"], source.meta["md5"])]:
            path = self._originals / name
            if not check_integrity(path, md5):
                raise InputError(
                    expected=f"{name} with md5 {md5}",
                    found=f"another file at {path}" if path.is_file() else f"nothing at {path}",
                    way_out=f"It is not opened. Fetch the Python version again from {_PAGE}.",
                )
        data = source(root=self.data_root(), train=part == "train")
        return LabelledImages(torch.from_numpy(data.data).permute(0, 3, 1, 2).contiguous(), torch.tensor(data.targets))

    def _fetch(self) -> None:
        if not self.download:
            return
        try:
            fetch_once(
                self.name,
                self.data_root(),
                missing=lambda: not self._originals.is_dir(),
                fetch=lambda: torchvision.datasets.CIFAR10(root=self.data_root(), download=True),
            )
        except (OSError, RuntimeError) as error:
            raise InputError(
                expected="CIFAR-10 from its origin",
                found=str(error).strip(),
                way_out=f"Fetch the Python version from {_PAGE} and unpack it into {self.data_root()}.",
            ) from error
