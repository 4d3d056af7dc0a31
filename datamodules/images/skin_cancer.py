"""HAM10000 (SkinCancer): photographs of pigmented skin lesions, several of some lesions."""

import functools
from collections.abc import Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from datamodules.images.base import ClassificationDataModule, LabelledImages, split_test
from datamodules.images.image_files import image_files_by_stem, read_images
from datamodules.io.tables import matching, read_table
from protocol.errors import require

_PAGE = "https://www.kaggle.com/datasets/kmader/skin-cancer-mnist-ham10000"
_METADATA = "HAM10000_metadata.csv"
_FOLDERS = ("HAM10000_images_part_1", "HAM10000_images_part_2", "HAM10000_images")
_KINDS = ("akiec", "bcc", "bkl", "df", "mel", "nv", "vasc")
_COLUMNS = {
    "lesion_id": matching(".+", "a lesion"),
    "image_id": matching(".+", "an image"),
    "dx": matching("|".join(_KINDS), f"a kind ({', '.join(_KINDS)})", _KINDS.index),
}


class SkinCancer(ClassificationDataModule):
    """HAM10000, 10,015 colour photographs of 7,470 skin lesions of seven kinds, of which the rarest has 115.

    All images of a lesion belong to one client, to the attacker, or to the test part, whose share is Decaf's: 3,005 of
    10,015.

    Files in ``root/ham10000/`` from https://www.kaggle.com/datasets/kmader/skin-cancer-mnist-ham10000:
    ``HAM10000_metadata.csv``, and the images in Kaggle's two folders, next to the metadata, or in zip files of either
    form.

    Args:
        image_size: height and width after resizing; Decaf only says that FER's 48 is larger (section IV-A).
        auxiliary_per_class: see `ClassificationDataModule`. Decaf's 100 are not possible: 7 of 10 images for training
            include about 80 of the rarest kind.
        kwargs: see `ClassificationDataModule`.

    Raises:
        InputError: `image_size` is below 1.

    References:
        P. Tschandl, C. Rosendahl and H. Kittler, "The HAM10000 dataset, a large collection of multi-source
        dermatoscopic images of common pigmented skin lesions", Scientific Data 5, 2018.
    """

    name = "ham10000"
    folders = (name,)
    class_names: Sequence[str] = _KINDS

    def __init__(self, *, image_size: tuple[int, int] = (32, 32), auxiliary_per_class: int = 10, **kwargs: Any) -> None:
        super().__init__(auxiliary_per_class=auxiliary_per_class, **kwargs)
        require(min(image_size) >= 1, "image_size of at least 1 pixel", image_size, "Give height and width.")
        self.image_shape = (3, *image_size)

    def read_train(self) -> LabelledImages:
        return self._read[0]

    def read_test(self) -> LabelledImages:
        return self._read[1]

    @functools.cached_property
    def _read(self) -> tuple[LabelledImages, LabelledImages]:
        folder = self.data_root() / self.name
        path = folder / _METADATA
        columns, _ = read_table(path, _COLUMNS, page=_PAGE)
        names = columns["image_id"]
        again = np.setdiff1d(np.arange(len(names)), np.unique(names, return_index=True)[1])
        line = int(again[0]) + 2 if len(again) else 1
        require(
            names and not len(again),
            "images that are named once each",
            f"no image, or one again, in line {line} of {path}",
            "The file may be cut short: download it again.",
        )
        images = read_images(_find(names, folder), self.image_shape, resized=True, name=self.name)
        lesions = np.unique(columns["lesion_id"], return_inverse=True)[1]
        whole = LabelledImages(images, torch.tensor(columns["dx"]), torch.from_numpy(lesions))
        return split_test(whole, class_names=self.class_names, fraction=0.3, seed=self.seed)


def _find(names: Sequence[str], folder: Path) -> list[Traversable]:
    """The files of images, in any layout."""
    found = image_files_by_stem(folder, _FOLDERS)
    missing = [name for name in names if name not in found]
    require(
        not missing,
        f"{len(names)} images in {folder}",
        f"no {next(iter(missing), '')}.jpg ({len(missing)} are missing)",
        f"Download HAM10000 from {_PAGE} and unpack both parts there.",
    )
    return [found[name] for name in names]
