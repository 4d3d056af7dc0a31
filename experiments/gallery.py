"""The images of a table, as users are sent them, and the features that they extract."""

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from datamodules.image_set import Crop, GeneratedImages, ImageSet
from datamodules.imagenet import ImageNet
from datamodules.recording_format import write_whole
from modules.feature_extractors import extractor
from modules.indirect_manipulation import PixelSearch
from modules.nets.feature_extractor import FeatureExtractor
from modules.perturbed_images import Perturbation, extract, perturb
from protocol.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large a table is made.

    Attributes:
        extractors: networks by name, see `modules.feature_extractors`.
        images: how many of the data set's are manipulated and shown.
        weights: of the networks: ``pretrained``, ``random``, or a folder with a file NAME.safetensors or NAME.pth each.
        features: average neighbouring features down to so many, None for all.
        crop: height and width of an image, None for what a network was trained on.
        partitions: parts of the features, in one of which an image's noise is.
        noise: standard deviation of the noise.
        search: how pixels are searched for it.
        fgsm: change of every pixel by FGSM.
        batch_size: images at once on each device.
    """

    extractors: list[str]
    images: int
    weights: str = "pretrained"
    features: int | None = None
    crop: int | None = None
    partitions: int = 2
    noise: float = 4.0
    search: Mapping[str, Any] = field(default_factory=dict)
    fgsm: float = 0.1
    batch_size: int = 64

    def perturbation(self, kind: str, seed: int) -> Perturbation:
        """What is done to the images."""
        search = PixelSearch(**self.search)
        return Perturbation(
            kind=kind,  # type: ignore[arg-type]
            partitions=self.partitions,
            scale=self.noise,
            search=search,
            epsilon=self.fgsm,
            seed=seed,
        )

    def network(self, name: str) -> FeatureExtractor:
        """An extractor."""
        crop = None if self.crop is None else Crop(self.crop, self.crop)
        return extractor(name, weights=weights_of(name, self.weights), features=self.features, crop=crop)


def weights_of(name: str, weights: str) -> str:
    """The file of a network's weights where a folder of them is given."""
    folder = Path(weights)
    if weights in ("pretrained", "random") or not folder.is_dir():
        return weights
    plain = name.rpartition(":")[2]
    found = [path for suffix in ("safetensors", "pth") if (path := folder / f"{plain}.{suffix}").is_file()]
    return str(found[0] if found else folder / f"{plain}.safetensors")


def images_of(data: str, root: str | None) -> ImageSet:
    """A set of images by its folder name."""
    return ImageNet(root=root) if data == ImageNet.name else GeneratedImages()


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Images of one set as one network has them: real, or manipulated and read back from the files that are sent.

    Attributes:
        data: the set's folder name.
        root: folder of the data sets.
        size: how large the table is.
        name: of the network.
        kind: ``none``, ``noise`` or ``fgsm``.
        seed: of the noise.
        folder: where manipulated images and features are kept.
        progress: show a bar while images are manipulated.
    """

    data: str
    root: str | None
    size: Size
    name: str
    kind: str
    seed: int
    folder: Path
    progress: bool = True

    @functools.cached_property
    def originals(self) -> ImageSet:
        """The set that the images are of."""
        return images_of(self.data, self.root)

    @functools.cached_property
    def numbers(self) -> list[int]:
        """Numbers of the images."""
        return self.originals.first(self.size.images)

    @functools.cached_property
    def network(self) -> FeatureExtractor:
        """What users extract features with."""
        return self.size.network(self.name)

    @functools.cached_property
    def perturbation(self) -> Perturbation:
        """What is done to the images."""
        return self.size.perturbation(self.kind, self.seed)

    @functools.cached_property
    def sent(self) -> ImageSet:
        """What users are sent; images that are not there yet are made."""
        if self.kind == "none":
            return self.originals
        return perturb(
            self.originals,
            self.numbers,
            self.network,
            self.perturbation,
            self._own_folder,
            batch_size=self.size.batch_size,
            progress=self.progress,
        )

    def features(self) -> Tensor:
        """``(N, F)`` as a user extracts them; kept in a file beside the images."""
        path = self._own_folder / "features.safetensors"
        if path.is_file():
            kept: Tensor = load_file(path)["features"]
            return kept
        found = extract(self.sent, self.numbers, self.network)
        write_whole(path, save({"features": found}))
        return found

    def draw(self, items: int, generator: torch.Generator) -> Tensor:
        """Positions ``(R,)`` of images drawn at random, as many of each part, those of the first part first.

        Raises:
            InputError: there are not so many images.
        """
        parts = self.size.partitions
        part = torch.tensor(self.numbers) % parts
        chosen = []
        for number in range(parts):
            own = (part == number).nonzero().flatten()
            count = items * (number + 1) // parts - items * number // parts
            if count > len(own):
                raise InputError(
                    expected=f"{items} items of {len(self.numbers)} images, as many of each of {parts} parts",
                    found=f"{len(own)} images of part {number}",
                    way_out="Take more images, fewer features or a smaller ratio.",
                )
            chosen.append(own[torch.randperm(len(own), generator=generator)[:count]])
        return torch.cat(chosen)

    @functools.cached_property
    def _own_folder(self) -> Path:
        """A folder that no other images and features share."""
        size = self.size
        what = (self.originals.fingerprint, self.name, size.images, size.weights, size.features, size.crop)
        described = f"{what}" if self.kind == "none" else f"{what} {self.perturbation}"
        key = hashlib.sha256(described.encode()).hexdigest()[:12]
        return self.folder / f"{self.data}-{self.name.replace(':', '-')}-{self.kind}-{key}"
