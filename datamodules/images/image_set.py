"""Sets of images that a server shows to its users, cropped to the input of a feature extractor."""

import abc
import hashlib
import io
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms.functional import to_pil_image

from fedleak.client.feature_extractor import Crop
from fedleak.core.errors import require
from fedleak.core.io.files import write_whole
from fedleak.datamodules.images.image_files import open_image


class ImageSet(abc.ABC):
    """A set of images. A subclass finds them.

    Attributes:
        name: name of the set in results.
        classes: number of classes, None if the images have none.
    """

    name: str
    classes: int | None = None

    @abc.abstractmethod
    def __len__(self) -> int:
        """Number of images."""

    @abc.abstractmethod
    def image(self, number: int) -> Image.Image:
        """An image in RGB."""

    def labels(self, numbers: Sequence[int]) -> Tensor:
        """``(N,)`` classes of images, -1 if unknown."""
        return torch.full((len(numbers),), -1)

    @property
    @abc.abstractmethod
    def fingerprint(self) -> dict[str, str]:
        """``name``, and ``sha256`` of the list of images."""

    def pixels(self, numbers: Sequence[int], crop: Crop) -> Tensor:
        """``(N, 3, size, size)`` uint8 cropped images with the given numbers."""
        with ThreadPoolExecutor() as pool:
            cropped = pool.map(lambda number: crop.of(self.image(number)), numbers)
            return torch.stack(list(cropped))

    def first(self, count: int) -> list[int]:
        """Ascending numbers of `count` images, drawn with a fixed seed because neighbours may be of one class."""
        require(
            count <= len(self),
            f"{count} images in {self.name}",
            len(self),
            "Ask for fewer images, or items in a smaller ratio to the features.",
        )
        order = np.random.Generator(np.random.PCG64(0)).permutation(len(self))[:count]
        return sorted(int(number) for number in order)


class GeneratedImages(ImageSet):
    """Synthetic images of smooth random colours with noise. Needs no files.

    Args:
        count: number of images.
        size: height and width in pixels.
        seed: seed of the draws.
    """

    name = "synthetic-photos"

    def __init__(self, *, count: int = 64, size: int = 64, seed: int = 0) -> None:
        self.count = count
        self.size = size
        self.seed = seed

    def __len__(self) -> int:
        return self.count

    def image(self, number: int) -> Image.Image:
        draws = np.random.default_rng((self.seed, number))
        # 5 x 5 random colours, enlarged smoothly, with noise of 8 grey levels on each number.
        colours = Image.fromarray(draws.integers(0, 256, (5, 5, 3), dtype=np.uint8))
        enlarged = colours.resize((self.size, self.size), Image.Resampling.BICUBIC)
        smooth = np.asarray(enlarged, dtype=np.float64)
        noisy = smooth + draws.normal(0, 8, smooth.shape)
        pixels = noisy.clip(0, 255).round().astype(np.uint8)
        return Image.fromarray(pixels)

    @property
    def fingerprint(self) -> dict[str, str]:
        # The images follow from these numbers.
        description = f"{self.name} {self.count} {self.size} {self.seed}"
        digest = hashlib.sha256(description.encode())
        return {"name": self.name, "sha256": digest.hexdigest()}


class StoredImages(ImageSet):
    """PNG images that were written one by one, under their numbers."""

    def __init__(self, folder: Path, *, name: str) -> None:
        self.folder = folder
        self.name = name

    def __len__(self) -> int:
        return sum(1 for _ in self.folder.glob("*.png"))

    def image(self, number: int) -> Image.Image:
        return open_image(self.path(number))

    def path(self, number: int) -> Path:
        """File of an image."""
        return self.folder / f"{number:08}.png"

    def write(self, number: int, pixels: Tensor, *, round_trip: float) -> None:
        """Writes an image atomically.

        Args:
            number: number of the image.
            pixels: ``(3, h, w)`` uint8.
            round_trip: mean squared change of the normalised pixels by rounding them to eight bits.
        """
        content = io.BytesIO()
        to_pil_image(pixels).save(content, "PNG")
        # First the note: every image that exists has one.
        write_whole(self._note(number), json.dumps({"round_trip": round_trip}).encode())
        write_whole(self.path(number), content.getvalue())

    def round_trip(self, number: int) -> float:
        """Mean squared change of an image by rounding; see `write`."""
        return float(json.loads(self._note(number).read_text(encoding="utf-8"))["round_trip"])

    def _note(self, number: int) -> Path:
        return self.path(number).with_suffix(".json")

    @property
    def fingerprint(self) -> dict[str, str]:
        names = sorted(path.name for path in self.folder.glob("*.png"))
        digest = hashlib.sha256("\n".join(names).encode())
        return {"name": self.name, "sha256": digest.hexdigest()}
