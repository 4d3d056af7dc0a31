"""Image files as arrays: found in folders and zip files, decoded by Pillow, cached by their content."""

import hashlib
import io
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources.abc import Traversable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from fedleak.core.errors import InputError, require
from fedleak.core.io.array_files import DAMAGED, load_arrays, store_arrays
from fedleak.core.io.files import MOST_UNPACKED, read_bounded, regular_file

SUFFIXES = (".jpg", ".jpeg", ".png")
_MODES = {1: "L", 3: "RGB"}
_AGAIN = "Download it again."


def trees(folder: Path) -> list[Traversable]:
    """The folder and every zip file in it, in the order of their names; none if there is no such folder."""
    roots: list[Traversable] = []
    if folder.is_dir():
        roots.append(folder)
    for path in sorted(folder.glob("*.zip")):
        regular_file(path)
        try:
            roots.append(zipfile.Path(path))
        except DAMAGED as error:
            raise InputError(
                expected=f"a complete zip file {path.name}",
                found=f"{error} at {path}",
                way_out=_AGAIN,
            ) from error
    return roots


def image_files(folder: Traversable) -> list[Traversable]:
    """The image files directly in a folder, in the order of their names."""
    files = [file for file in folder.iterdir() if file.name.lower().endswith(SUFFIXES)]
    return sorted(files, key=lambda file: file.name)


def image_files_by_stem(folder: Path, parts: Sequence[str]) -> dict[str, Traversable]:
    """Image files by name without suffix, in a folder and its zip files, and in the folders `parts` of these."""
    file_of_stem = {}
    for tree in trees(folder):
        for subfolder in (tree, *(tree.joinpath(part) for part in parts)):
            if subfolder.is_dir():
                for file in image_files(subfolder):
                    stem = file.name.rsplit(".", 1)[0]
                    file_of_stem[stem] = file
    return file_of_stem


def files_by_class(part: Traversable, class_names: Sequence[str]) -> tuple[list[Traversable], Tensor]:
    """The image files of ``part/CLASS/``, class after class, and their classes ``(N,)``."""
    files: list[Traversable] = []
    labels: list[int] = []
    for number, name in enumerate(class_names):
        folder = part.joinpath(name)
        class_files = image_files(folder) if folder.is_dir() else []
        require(class_files, f"images of the class {name}", f"none in {folder}", "Download the data set again.")
        files += class_files
        labels += [number] * len(class_files)
    return files, torch.tensor(labels)


def read_images(files: Sequence[Traversable], shape: tuple[int, int, int], *, resized: bool, name: str) -> Tensor:
    """Decodes images; a cache under the hash of the files' content saves the next decoding.

    Args:
        files: image files.
        shape: channels (1 grey, 3 colours), height and width of the result.
        resized: resize every image to that height and width; otherwise another size is an error.
        name: name of the data set, for the progress bar.

    Returns:
        ``(N, channels, height, width)`` uint8.

    Raises:
        InputError: a file is damaged, or of another size; the error names it.
    """
    # The key says all on which the pixels depend: the content of the files, and how they are decoded.
    digest = hashlib.sha256()
    for file in files:
        digest.update(hashlib.sha256(_bytes(file)).digest())
    size = "x".join(map(str, shape))
    form = "resized" if resized else "exact"
    key = f"images1-{size}-{form}-{digest.hexdigest()}"
    arrays = load_arrays(key)
    if arrays is not None and arrays.keys() == {"images"}:
        cached = arrays["images"]
        if cached.shape == (len(files), *shape) and cached.dtype == np.uint8:
            return torch.from_numpy(cached)
    images = np.empty((len(files), *shape), dtype=np.uint8)

    def read(number: int) -> None:
        images[number] = _decode(files[number], shape, resized=resized)

    # Pillow decodes outside of Python's lock.
    with ThreadPoolExecutor() as pool:
        done = pool.map(read, range(len(files)))
        list(tqdm(done, total=len(files), unit="image", desc=name, delay=2, leave=False, disable=None))
    store_arrays(key, {"images": images})
    return torch.from_numpy(images)


def open_image(file: Traversable, channels: int = 3) -> Image.Image:
    """Decodes an image and converts it to colours, or to grey for one channel.

    Raises:
        InputError: the file is damaged; the error names it.
    """
    content = _bytes(file)
    try:
        with Image.open(io.BytesIO(content), formats=("JPEG", "PNG")) as opened:
            return opened.convert(_MODES[channels])
    except (*DAMAGED, Image.DecompressionBombError) as error:
        raise InputError(
            expected="a complete JPEG or PNG image",
            found=f"{len(content)} bytes of something else at {file}",
            way_out=_AGAIN,
        ) from error


def _decode(file: Traversable, shape: tuple[int, int, int], *, resized: bool) -> npt.NDArray[np.uint8]:
    channels, height, width = shape
    image = open_image(file, channels)
    if image.size != (width, height):
        require(
            resized,
            f"an image of {height} x {width} pixels",
            f"{image.height} x {image.width} at {file}",
            "Download the data set in its owners' layout.",
        )
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    # Grey images have no dimension of channels in Pillow.
    pixels = np.asarray(image, np.uint8).reshape(height, width, channels)
    return pixels.transpose(2, 0, 1)


def _bytes(file: Traversable) -> bytes:
    if isinstance(file, Path):
        return read_bounded(file, most=MOST_UNPACKED, way_out=_AGAIN)
    try:
        # What a zip file says of a member's size may be wrong: one byte more than allowed is read, no more.
        with file.open("rb") as opened:
            content = opened.read(MOST_UNPACKED + 1)
        if len(content) > MOST_UNPACKED:
            raise ValueError(f"more than {MOST_UNPACKED} bytes")
        return content
    except DAMAGED as error:
        raise InputError(expected=f"a readable file {file.name}", found=f"{error} at {file}", way_out=_AGAIN) from error
