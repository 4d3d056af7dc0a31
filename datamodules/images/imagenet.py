"""ImageNet (Russakovsky et al. 2015): the validation images of ILSVRC-2012."""

import functools
import hashlib
import shutil
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from PIL import Image
from torchvision.datasets import imagenet

from datamodules.base import data_root
from datamodules.images.image_files import image_files, open_image, trees
from datamodules.images.image_set import ImageSet
from datamodules.images.voters import ImageVoters
from protocol.errors import InputError
from ranges import PositiveInt

NAME = "imagenet"
"""Of the folder."""
_PAGE = "https://image-net.org/challenges/LSVRC/2012/2012-downloads.php"
_ARCHIVE, _DEVKIT = (imagenet.ARCHIVE_META[part][0] for part in ("val", "devkit"))
_UNFINISHED = "val.unfinished"


class ValidationImages(ImageSet):
    """50,000 photographs of 1,000 kinds of things.

    Reads ``root/imagenet/``, in this order: ``val/SYNSET/*.JPEG`` as torchvision lays it out, a zip file of that form,
    or the archive with its development kit, which torchvision checks by hash and unpacks into ``val/``. A file is
    decoded when it is asked for.

    Args:
        root: folder that holds the data sets by their names; None for the environment variable ``FEDLEAK_DATA``.
    """

    name = NAME

    def __init__(self, *, root: str | None = None) -> None:
        self.root = root

    def __getstate__(self) -> dict[str, str | None]:
        """For another process: an open zip file cannot go there."""
        return {"root": self.root}

    def __len__(self) -> int:
        return len(self._files)

    def image(self, number: int) -> Image.Image:
        return open_image(self._files[number])

    @property
    def fingerprint(self) -> dict[str, str]:
        """See `ImageSet.fingerprint`; of the files' names, because reading 6 GB takes longer than most tables."""
        names = "\n".join(file.name for file in self._files)
        return {"name": self.name, "sha256": hashlib.sha256(names.encode()).hexdigest()}

    @functools.cached_property
    def _files(self) -> list[Traversable]:
        folder = data_root(self.root) / self.name
        found = _in_trees(folder)
        if not found and (folder / _ARCHIVE).is_file():
            unpack(folder)
            found = _in_trees(folder)
        if not found:
            raise InputError(
                expected=f"ImageNet's validation images at {folder / 'val'}",
                found="no val/SYNSET/*.JPEG, no zip file of that form and no archive",
                way_out=f"Fetch {_ARCHIVE} and {_DEVKIT} from {_PAGE} and put both there.",
            )
        return found


class ImageNet(ImageVoters):
    """Users who vote on ImageNet's validation images; the other arguments are those of `ImageVoters`.

    Args:
        images: how many are shown, None for all (RAIFLE: as many as the largest network has features, four times).
    """

    name = NAME

    folders = (NAME,)

    def __init__(self, *, images: PositiveInt | None = 5120, **kwargs: Any) -> None:
        super().__init__(images=images, **kwargs)

    @functools.cached_property
    def photos(self) -> ValidationImages:
        return ValidationImages(root=self.root)


def unpack(folder: Path) -> None:
    """Unpacks the archive into ``val/SYNSET/``, whole or not at all.

    Raises:
        InputError: the archive or the development kit is missing, or not its owners' file.
    """
    shutil.rmtree(folder / _UNFINISHED, ignore_errors=True)
    try:
        imagenet.parse_devkit_archive(folder)
        imagenet.parse_val_archive(folder, folder=_UNFINISHED)
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise InputError(
            expected=f"{_ARCHIVE} and {_DEVKIT} in {folder}",
            found=str(error).strip(),
            way_out=f"Fetch them again from {_PAGE}.",
        ) from error
    (folder / _UNFINISHED).rename(folder / "val")


def _in_trees(folder: Path) -> list[Traversable]:
    """The images of the first tree that has any, synset after synset."""
    for tree in trees(folder) if folder.is_dir() else []:
        part = tree.joinpath("val")
        synsets = sorted(part.iterdir(), key=lambda entry: entry.name) if part.is_dir() else []
        found = [file for synset in synsets if synset.is_dir() for file in image_files(synset)]
        if found:
            return found
    return []
