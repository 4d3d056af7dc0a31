"""FER-2013: faces by their expression."""

import functools
from collections.abc import Mapping, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedleak.core.errors import InputError, require
from fedleak.core.io.array_files import load_arrays, store_arrays
from fedleak.core.io.files import sha256_of
from fedleak.core.io.tables import Field, matching, read_table
from fedleak.datamodules.images.base import ClassificationDataModule, LabelledImages, split_test
from fedleak.datamodules.images.image_files import files_by_class, read_images, trees

SIZE = 48
FILES = {"fer2013.csv": True, "icml_face_data.csv": True, "train.csv": False}
"""CSV files of the challenge, and whether each has the test images too."""
_PAGE = "https://www.kaggle.com/datasets/msambare/fer2013"
_TEST_FRACTION = 0.125
"""Share of the test images of a file without them."""
_CLASS_OF_CODE = np.array([0, 1, 2, 3, 5, 6, 4])
"""The files count angry, disgust, fear, happy, sad, surprise, neutral; the folders are in alphabetical order."""


def _pixels(text: str) -> npt.NDArray[np.uint8]:
    # Checked first, because numpy reads signs and other forms of numbers too.
    if not set(text) <= set("0123456789 "):
        raise ValueError(text)
    values = np.array(text.split(), dtype=np.int64)
    if len(values) != SIZE**2 or values.max() > 255:
        raise ValueError(text)
    return values.astype(np.uint8).reshape(1, SIZE, SIZE)


_COLUMNS = {
    "emotion": matching("[0-6]", "a class from 0 to 6", int),
    "pixels": Field(f"{SIZE**2} numbers from 0 to 255", _pixels),
}
_USAGE = {"Usage": matching("Training|PublicTest|PrivateTest", "Training, PublicTest or PrivateTest")}


class FER(ClassificationDataModule):
    """FER-2013, grey 48 x 48 faces of seven expressions: 28,709 for training and 7,178 for the test.

    Some faces are in it more than once, also in both parts, so copies of one can belong to two clients. The classes are
    in alphabetical order in every layout, unlike in the CSV files.

    Files in ``root/fer2013/`` from https://www.kaggle.com/datasets/msambare/fer2013, the first of: ``fer2013.csv``;
    ``icml_face_data.csv``; ``train.csv``, an eighth of which becomes the test part, because the challenge's test images
    have no labels; ``{train,test}/CLASS/*.jpg``; a zip file of that form.

    References:
        [Goodfellow13].
    """

    name = "fer2013"
    folders = (name,)
    class_names: Sequence[str] = ("angry", "disgust", "fear", "happy", "neutral", "sad", "surprise")
    image_shape = (1, SIZE, SIZE)

    def read_train(self) -> LabelledImages:
        return self._read[0]

    def read_test(self) -> LabelledImages:
        return self._read[1]

    @functools.cached_property
    def _read(self) -> tuple[LabelledImages, LabelledImages]:
        folder = self.data_root() / self.name
        for file, with_test in FILES.items():
            if (folder / file).is_file():
                images, labels, is_training = read_fer(folder / file)
                faces = LabelledImages(images, labels)
                if not with_test:
                    return split_test(faces, class_names=self.class_names, fraction=_TEST_FRACTION, seed=self.seed)
                train = faces.select(is_training.nonzero().flatten())
                test = faces.select((~is_training).nonzero().flatten())
                return train, test
        for tree in trees(folder):
            train_folder = tree.joinpath("train")
            test_folder = tree.joinpath("test")
            if train_folder.is_dir() and test_folder.is_dir():
                # Both are listed before any image is decoded, so that a missing class is found at once.
                train_files = files_by_class(train_folder, self.class_names)
                test_files = files_by_class(test_folder, self.class_names)
                return self._decoded(*train_files), self._decoded(*test_files)
        raise InputError(
            expected=f"FER-2013 at {folder}",
            found="neither train and test folders nor one of the CSV files",
            way_out=f"Download it from {_PAGE} and put it there.",
        )

    def _decoded(self, files: Sequence[Traversable], labels: Tensor) -> LabelledImages:
        images = read_images(files, self.image_shape, resized=False, name=self.name)
        return LabelledImages(images, labels)


def read_fer(path: Path) -> tuple[Tensor, Tensor, Tensor]:
    """Reads one of the CSV `FILES`, later from a cache.

    Returns:
        Images ``(N, 1, 48, 48)`` uint8, classes ``(N,)`` int64, ``(N,)`` True for training.

    Raises:
        InputError: the file is damaged; the error names the line.
    """
    key = f"fer2-{path.name}-{sha256_of(path)}"
    arrays = load_arrays(key)
    if arrays is None or not _is_complete(arrays):
        arrays = _parse(path, with_test=FILES[path.name])
        store_arrays(key, arrays)
    images, labels, training = (torch.from_numpy(arrays[name]) for name in ("images", "labels", "training"))
    return images, labels, training


def _is_complete(arrays: Mapping[str, npt.NDArray[np.generic]]) -> bool:
    """Whether a cache holds what `_parse` makes."""
    if arrays.keys() != {"images", "labels", "training"}:
        return False
    images = arrays["images"]
    labels = arrays["labels"]
    training = arrays["training"]
    count = len(images) if images.ndim else 0
    has_shapes = images.shape == (count, 1, SIZE, SIZE) and labels.shape == training.shape == (count,)
    has_types = [str(array.dtype) for array in (images, labels, training)] == ["uint8", "int64", "bool"]
    return bool(has_shapes and has_types and np.isin(labels, _CLASS_OF_CODE).all())


def _parse(path: Path, *, with_test: bool) -> dict[str, npt.NDArray[np.generic]]:
    fields = _COLUMNS
    if with_test:
        fields = _COLUMNS | _USAGE
    columns, _ = read_table(path, fields, page=_PAGE)
    count = len(columns["emotion"])
    # Both of the challenge's test sets, public and private, are the test.
    is_training = np.ones(count, dtype=bool)
    if with_test:
        is_training = np.array(columns["Usage"]) == "Training"
    require(
        count and not (with_test and (is_training.all() or not is_training.any())),
        f"images for training and for the test in {path.name}",
        f"{int(is_training.sum())} and {int((~is_training).sum())} at {path}",
        "Download it again.",
    )
    labels = _CLASS_OF_CODE[np.array(columns["emotion"])]
    return {"images": np.stack(columns["pixels"]), "labels": labels, "training": is_training}
