"""SkinCancer (HAM10000, Tschandl 2018): photographs of pigmented skin lesions, several of one lesion."""

import functools
from collections.abc import Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from datamodules.images.base import ClassificationDataModule, LabelledImages, split_test
from datamodules.images.image_files import image_files, read_images, trees
from protocol.errors import InputError

_PAGE = "https://www.kaggle.com/datasets/kmader/skin-cancer-mnist-ham10000"
_METADATA = "HAM10000_metadata.csv"
_FOLDERS = ("HAM10000_images_part_1", "HAM10000_images_part_2", "HAM10000_images")
_COLUMNS = ["lesion_id", "image_id", "dx"]


class SkinCancer(ClassificationDataModule):
    """10,015 colour photographs of 7,470 lesions of seven kinds, brought to one size; the rarest kind has 115.

    Reads ``root/ham10000/``: the metadata, and the images in Kaggle's two folders, beside the metadata, or in zip files
    of either form. All images of one lesion are with one client, or the attacker's, or in the test, whose share is
    Decaf's: 3,005 of 10,015. The other arguments are those of `ClassificationDataModule`.

    Args:
        image_size: height and width; Decaf says of its size that FER's 48 is larger (section IV-A).
        auxiliary_per_class: see `ClassificationDataModule`. Decaf's 100 of each class cannot be: 7 of 10 images for
            training hold some 80 of the rarest.
    """

    name = "ham10000"
    folders = (name,)
    class_names: Sequence[str] = ("akiec", "bcc", "bkl", "df", "mel", "nv", "vasc")

    def __init__(self, *, image_size: tuple[int, int] = (32, 32), auxiliary_per_class: int = 10, **kwargs: Any) -> None:
        super().__init__(auxiliary_per_class=auxiliary_per_class, **kwargs)
        if min(image_size) < 1:
            raise InputError(
                expected="image_size of at least 1 pixel", found=str(image_size), way_out="Give height and width."
            )
        self.image_shape = (3, *image_size)

    def read_train(self) -> LabelledImages:
        return self._read[0]

    def read_test(self) -> LabelledImages:
        return self._read[1]

    @functools.cached_property
    def _read(self) -> tuple[LabelledImages, LabelledImages]:
        folder = self.data_root() / self.name
        frame = _read_metadata(folder / _METADATA, self.class_names)
        files = _find(frame["image_id"].tolist(), folder)
        images = read_images(files, self.image_shape, resized=True, name=self.name)
        labels = np.array([self.class_names.index(kind) for kind in frame["dx"]], dtype=np.int64)
        lesions = np.unique(frame["lesion_id"].to_numpy(dtype=str), return_inverse=True)[1]
        whole = LabelledImages(images, torch.from_numpy(labels), torch.from_numpy(lesions))
        return split_test(whole, class_names=self.class_names, fraction=0.3, seed=self.seed)


def _read_metadata(path: Path, kinds: Sequence[str]) -> pd.DataFrame:
    if not path.is_file():
        raise InputError(
            expected=f"the file {_METADATA}",
            found=f"nothing at {path}",
            way_out=f"Fetch HAM10000 from {_PAGE} and unpack it there.",
        )
    try:
        frame = pd.read_csv(path, usecols=_COLUMNS, dtype=str, keep_default_na=False)
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(
            expected=f"the columns {', '.join(_COLUMNS)} in {_METADATA}",
            found=f"{str(error).strip()} in {path}",
            way_out="Fetch it again.",
        ) from None
    unknown = ~frame["dx"].isin(kinds) | (frame["lesion_id"] == "") | frame["image_id"].duplicated()
    if unknown.any() or frame.empty:
        line = int(np.argmax(unknown.to_numpy())) + 2 if len(frame) else 1
        raise InputError(
            expected=f"a lesion, an image named once and a kind ({', '.join(kinds)}) in every line",
            found=f"another content in line {line} of {path}",
            way_out="The file may be cut short: fetch it again.",
        )
    return frame


def _find(names: Sequence[str], folder: Path) -> list[Traversable]:
    """The files of images, wherever they lie."""
    places = [place for tree in trees(folder) for place in (tree, *(tree.joinpath(name) for name in _FOLDERS))]
    found = {file.name.rsplit(".", 1)[0]: file for place in places if place.is_dir() for file in image_files(place)}
    missing = [name for name in names if name not in found]
    if missing:
        raise InputError(
            expected=f"{len(names)} images in {folder}",
            found=f"no {missing[0]}.jpg ({len(missing)} are missing)",
            way_out=f"Fetch HAM10000 from {_PAGE} and unpack both parts there.",
        )
    return [found[name] for name in names]
