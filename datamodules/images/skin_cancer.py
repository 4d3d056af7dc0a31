"""HAM10000 (SkinCancer): photographs of pigmented skin lesions, several of some lesions."""

import functools
from collections.abc import Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedleak.core.errors import require
from fedleak.core.io.tables import matching, read_table
from fedleak.datamodules.images.base import ClassificationDataModule, LabelledImages, split_test
from fedleak.datamodules.images.image_files import image_files_by_stem, read_images
from fedleak.training.people import UNKNOWN, bands

_PAGE = "https://www.kaggle.com/datasets/kmader/skin-cancer-mnist-ham10000"
_METADATA = "HAM10000_metadata.csv"
_FOLDERS = ("HAM10000_images_part_1", "HAM10000_images_part_2", "HAM10000_images")
_KINDS = ("akiec", "bcc", "bkl", "df", "mel", "nv", "vasc")
_COLUMNS = {
    "lesion_id": matching(".+", "a lesion"),
    "image_id": matching(".+", "an image"),
    "dx": matching("|".join(_KINDS), f"a kind ({', '.join(_KINDS)})", _KINDS.index),
}
_REGIONS = {
    "face": 0,
    "neck": 0,
    "scalp": 0,
    "ear": 0,
    "back": 1,
    "trunk": 1,
    "abdomen": 1,
    "chest": 1,
    "genital": 1,
    "upper extremity": 2,
    "hand": 2,
    "lower extremity": 3,
    "foot": 3,
    "acral": UNKNOWN,
    "unknown": UNKNOWN,
}
_AGES = (40, 60)
"""First age of the second and of the third band."""
_PERSON = {
    "lesion_id": matching(".+", "a lesion"),
    "age": matching(r"([0-9]{1,3}(\.0*)?)?", "an age or nothing", lambda text: int(float(text)) if text else UNKNOWN),
    "sex": matching(
        "male|female|unknown", "male, female or unknown", {"male": 0, "female": 1, "unknown": UNKNOWN}.__getitem__
    ),
    "localization": matching("|".join(_REGIONS), "a place on the body", _REGIONS.__getitem__),
}


class SkinCancer(ClassificationDataModule):
    """HAM10000, 10,015 colour photographs of 7,470 skin lesions of seven kinds, of which the rarest has 115.

    All images of a lesion belong to one client, to the attacker, or to the test part, whose share is Decaf's: 3,005 of
    10,015.

    Attributes of the patient, where every client has the photographs of one lesion (``split.scheme: groups``): ``sex``,
    ``age`` (below 40, 40 to 59, from 60) and ``site``: head and neck, trunk, arm, leg. The set does not say which
    lesions are of one patient.

    Files in ``root/ham10000/`` from https://www.kaggle.com/datasets/kmader/skin-cancer-mnist-ham10000:
    ``HAM10000_metadata.csv``, and the images in Kaggle's two folders, next to the metadata, or in zip files of either
    form.

    Args:
        image_size: height and width after resizing; Decaf only says that FER's 48 is larger (section IV-A).
        auxiliary_per_class: see `ClassificationDataModule`. Decaf's 100 are not possible: 7 of 10 images for training
            include about 80 of the rarest kind.

    References:
        [Tschandl18].
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
        _, first = np.unique(names, return_index=True)
        repeated = np.setdiff1d(np.arange(len(names)), first)
        # Rows count from 0, lines from 1, and the first line is the header.
        line = 1
        if len(repeated):
            line = int(repeated[0]) + 2
        require(
            names and not len(repeated),
            "images that are named once each",
            f"no image, or one again, in line {line} of {path}",
            "The file may be cut short: download it again.",
        )
        images = read_images(_find(names, folder), self.image_shape, resized=True, name=self.name)
        _, lesions = np.unique(columns["lesion_id"], return_inverse=True)
        photographs = LabelledImages(images, torch.tensor(columns["dx"]), torch.from_numpy(lesions))
        return split_test(photographs, class_names=self.class_names, fraction=0.3, seed=self.seed)

    def read_attributes(self) -> dict[str, Tensor]:
        assert self._train.groups is not None
        lesions_of_clients = [torch.unique(self._train.groups[numbers]) for numbers in self.client_images()]
        several = None
        for client, lesions in enumerate(lesions_of_clients):
            if len(lesions) > 1:
                several = client
                break
        require(
            several is None,
            "clients with the photographs of one lesion each, whose patient has the attributes",
            f"client {several} with several lesions",
            "Set data.split.scheme to groups, or leave data.attributes out.",
        )
        columns, _ = read_table(self.data_root() / self.name / _METADATA, _PERSON, page=_PAGE)
        # Lesions are numbered in the order of their names; a patient's row is that of the first photograph.
        _, first = np.unique(columns["lesion_id"], return_index=True)
        rows = torch.from_numpy(first)[torch.cat(lesions_of_clients)]
        age = torch.tensor(columns["age"])[rows]
        sex = torch.tensor(columns["sex"])[rows]
        site = torch.tensor(columns["localization"])[rows]
        return {"age": bands(age, _AGES), "sex": sex, "site": site}


def _find(names: Sequence[str], folder: Path) -> list[Traversable]:
    file_of_image = image_files_by_stem(folder, _FOLDERS)
    missing = [name for name in names if name not in file_of_image]
    require(
        not missing,
        f"{len(names)} images in {folder}",
        f"no {next(iter(missing), '')}.jpg ({len(missing)} are missing)",
        f"Download HAM10000 from {_PAGE} and unpack both parts there.",
    )
    return [file_of_image[name] for name in names]
