"""Reading FER-2013's CSV files: a class, 48 x 48 pixels as words, and the part that an image belongs to."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from datamodules.io.array_cache import load_arrays, store_arrays
from datamodules.recommendation.ratings_csv import sha256_of
from protocol.errors import InputError

SIZE = 48
_PIXEL = frozenset("0123456789 ")
_PARTS = ("Training", "PublicTest", "PrivateTest")
_CLASS_OF_CODE = np.array([0, 1, 2, 3, 5, 6, 4])
"""The files count angry, disgust, fear, happy, sad, surprise, neutral; the folders come in alphabetical order."""


@dataclass(frozen=True)
class FerLayout:
    """One of the forms of the same data.

    Attributes:
        file: its name.
        emotion: column of the class.
        pixels: column of the pixels.
        usage: column of the part; None where all is for training.
    """

    file: str
    emotion: str
    pixels: str
    usage: str | None


FILES = (
    FerLayout("fer2013.csv", "emotion", "pixels", "Usage"),
    FerLayout("icml_face_data.csv", "emotion", " pixels", " Usage"),
    FerLayout("train.csv", "emotion", "pixels", None),
)


def read_fer(path: Path, layout: FerLayout) -> tuple[Tensor, Tensor, Tensor]:
    """Reads a file, from a cache the second time.

    Args:
        path: the file.
        layout: its form.

    Returns:
        Images ``(N, 1, 48, 48)`` uint8, classes ``(N,)`` int64, ``(N,)`` True for training.

    Raises:
        InputError: the file is damaged; its line is named.
    """
    key = f"fer2-{layout.file}-{sha256_of(path)}"
    arrays = load_arrays(key)
    if arrays is None or not _is_whole(arrays):
        arrays = _parse(path, layout)
        store_arrays(key, arrays)
    images, labels, training = (torch.from_numpy(arrays[name]) for name in ("images", "labels", "training"))
    return images, labels, training


def _is_whole(arrays: Mapping[str, npt.NDArray[np.generic]]) -> bool:
    """Whether a cache holds what `_parse` makes."""
    if arrays.keys() != {"images", "labels", "training"}:
        return False
    images, labels, training = (arrays[name] for name in ("images", "labels", "training"))
    count = len(images) if images.ndim else 0
    shapes = images.shape == (count, 1, SIZE, SIZE) and labels.shape == training.shape == (count,)
    types = [str(array.dtype) for array in (images, labels, training)] == ["uint8", "int64", "bool"]
    return bool(shapes and types and np.isin(labels, _CLASS_OF_CODE).all())


def _parse(path: Path, layout: FerLayout) -> dict[str, npt.NDArray[np.generic]]:
    columns = [column for column in (layout.emotion, layout.pixels, layout.usage) if column is not None]
    try:
        frame = pd.read_csv(path, usecols=columns, dtype=str, keep_default_na=False)
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(
            expected=f"the columns {', '.join(column.strip() for column in columns)} in {path.name}",
            found=f"{str(error).strip()} in {path}",
            way_out="Fetch it again.",
        ) from None
    codes = frame[layout.emotion].to_numpy()
    _refuse(path, ~np.isin(codes, [str(code) for code in range(len(_CLASS_OF_CODE))]), "a class from 0 to 6", codes)
    images = np.empty((len(frame), 1, SIZE, SIZE), np.uint8)
    for row, words in enumerate(frame[layout.pixels]):
        images[row, 0] = _pixels(path, row, words)
    training = np.ones(len(frame), dtype=bool)
    if layout.usage is not None:
        parts = frame[layout.usage].to_numpy()
        _refuse(path, ~np.isin(parts, _PARTS), " or ".join(_PARTS), parts)
        training = parts == _PARTS[0]
    if not len(frame) or (layout.usage is not None and (training.all() or not training.any())):
        raise InputError(
            expected=f"images for training and for the test in {path.name}",
            found=f"{int(training.sum())} and {int((~training).sum())} at {path}",
            way_out="Fetch it again.",
        )
    return {"images": images, "labels": _CLASS_OF_CODE[codes.astype(np.int64)], "training": training}


def _pixels(path: Path, row: int, words: str) -> npt.NDArray[np.uint8]:
    try:
        values = np.array(words.split() if set(words) <= _PIXEL else (), dtype=np.int64)
    except (ValueError, OverflowError):
        values = np.empty(0, np.int64)
    if len(values) != SIZE**2 or values.min() < 0 or values.max() > 255:
        raise InputError(
            expected=f"{SIZE**2} numbers from 0 to 255 as pixels",
            found=f"{len(words.split())} words in line {row + 2} of {path}",
            way_out="The file may be cut short: fetch it again.",
        )
    return values.astype(np.uint8).reshape(SIZE, SIZE)


def _refuse(path: Path, bad: npt.NDArray[np.bool_], expected: str, values: npt.NDArray[np.object_]) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            expected=expected,
            found=f"{values[row]!r} in line {row + 2} of {path}",
            way_out="The file may be cut short: fetch it again.",
        )
