"""ImageNet: the validation images of ILSVRC-2012."""

import functools
import hashlib
import shutil
from collections.abc import Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from timm.data import ImageNetInfo
from torch import Tensor
from torchvision.datasets import imagenet

from fedleak.core.errors import InputError, require
from fedleak.core.ranges import PositiveInt
from fedleak.datamodules.images.image_files import image_files, open_image, trees
from fedleak.datamodules.images.image_set import ImageSet
from fedleak.datamodules.images.voters import ImageVoters
from fedleak.training.data_folder import data_root

NAME = "imagenet"
_PAGE = "https://image-net.org/challenges/LSVRC/2012/2012-downloads.php"
_ARCHIVE = imagenet.ARCHIVE_META["val"][0]
_DEVKIT = imagenet.ARCHIVE_META["devkit"][0]
_UNFINISHED = "val.unfinished"


class ValidationImages(ImageSet):
    """Validation images of ILSVRC-2012, 50,000 photographs of 1,000 kinds of objects, decoded at each access.

    Files in ``root/imagenet/`` from https://image-net.org/challenges/LSVRC/2012/2012-downloads.php, the first of:
    ``val/SYNSET/*.JPEG`` as torchvision lays it out; a zip file of that form; the archive with its development kit,
    which torchvision checks by hash and unpacks into ``val/``.

    References:
        [Russakovsky15].
    """

    name = NAME
    classes: int = 1000

    def __init__(self, *, root: str | None = None) -> None:
        self.root = root

    def __getstate__(self) -> dict[str, str | None]:
        """State for another process, without the open zip file."""
        return {"root": self.root}

    def __len__(self) -> int:
        return len(self._files)

    def image(self, number: int) -> Image.Image:
        return open_image(self._files[number])

    def labels(self, numbers: Sequence[int]) -> Tensor:
        info = ImageNetInfo()
        class_of_synset = {info.index_to_label_name(number): number for number in range(self.classes)}
        return torch.tensor([class_of_synset.get(_synset(self._files[number]), -1) for number in numbers])

    @property
    def fingerprint(self) -> dict[str, str]:
        """``sha256`` is of the files' names, because reading 6 GB takes longer than most tables."""
        names = "\n".join(file.name for file in self._files)
        digest = hashlib.sha256(names.encode())
        return {"name": self.name, "sha256": digest.hexdigest()}

    @functools.cached_property
    def _files(self) -> list[Traversable]:
        folder = data_root(self.root) / self.name
        images = _in_trees(folder)
        if not images and (folder / _ARCHIVE).is_file():
            unpack(folder)
            images = _in_trees(folder)
        require(
            images,
            f"ImageNet's validation images at {folder / 'val'}",
            "no val/SYNSET/*.JPEG, no zip file of that form and no archive",
            f"Download {_ARCHIVE} and {_DEVKIT} from {_PAGE} and put both there.",
        )
        return images


class ImageNet(ImageVoters):
    """Users who vote on ImageNet's `ValidationImages`.

    Args:
        images: number of images that are shown; None for all (RAIFLE: four times the features of the largest network).
    """

    folders = (NAME,)

    def __init__(self, *, images: PositiveInt | None = 5120, **kwargs: Any) -> None:
        super().__init__(images=images, **kwargs)

    @functools.cached_property
    def photos(self) -> ValidationImages:
        return ValidationImages(root=self.root)


def unpack(folder: Path) -> None:
    """Unpacks the archive into ``val/SYNSET/`` atomically.

    Raises:
        InputError: the archive or the development kit is missing, or has another hash than its owners publish.
    """
    # What an interrupted run has left is of no use.
    shutil.rmtree(folder / _UNFINISHED, ignore_errors=True)
    try:
        imagenet.parse_devkit_archive(folder)
        imagenet.parse_val_archive(folder, folder=_UNFINISHED)
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise InputError(
            expected=f"{_ARCHIVE} and {_DEVKIT} in {folder}",
            found=str(error).strip(),
            way_out=f"Download them again from {_PAGE}.",
        ) from error
    (folder / _UNFINISHED).rename(folder / "val")


def _synset(file: Traversable) -> str:
    """Name of the folder of an image, in a folder or a zip file."""
    return str(file).replace("\\", "/").split("/")[-2]


def _in_trees(folder: Path) -> list[Traversable]:
    """The images of the first tree that has any, synset after synset."""
    for tree in trees(folder):
        part = tree.joinpath("val")
        if not part.is_dir():
            continue
        images: list[Traversable] = []
        for synset in sorted(part.iterdir(), key=lambda entry: entry.name):
            if synset.is_dir():
                images += image_files(synset)
        if images:
            return images
    return []
