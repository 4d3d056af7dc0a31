"""Images that the server sends and the features that clients extract, computed once and cached on disk."""

import functools
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from lightning import Trainer
from safetensors.torch import load_file, save
from torch import Tensor
from tqdm import tqdm

from fedleak.client.feature_extractor import Crop, FeatureExtractor
from fedleak.core.errors import InputError, require
from fedleak.core.io.files import write_whole
from fedleak.datamodules.images.image_set import ImageSet, StoredImages
from fedleak.modules.image_features.feature_extractors import Extractor
from fedleak.server.image_manipulation import ImageManipulation


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Real or manipulated images of one set with their features under one network.

    Attributes:
        photos: the set.
        numbers: numbers of the used images.
        extractor: the clients' feature extractor.
        manipulation: the server's manipulation of the images, None for real images.
        partitions: number of parts of the features; image n belongs to part ``n % partitions``.
        seed: seed of the manipulation.
        folder: cache folder, with a subfolder for each gallery.
        batch_size: images per batch on each device, reduced if its memory is too small.
        progress: whether to show a progress bar.
    """

    photos: ImageSet
    numbers: list[int]
    extractor: Extractor
    manipulation: ImageManipulation | None
    partitions: int
    seed: int
    folder: Path
    batch_size: int = 64
    progress: bool = True

    @functools.cached_property
    def network(self) -> FeatureExtractor:
        """The clients' feature extractor."""
        return self.extractor.build()

    @functools.cached_property
    def sent(self) -> ImageSet:
        """Images that clients receive; `features` computes missing ones."""
        if self.manipulation is None:
            return self.photos
        return StoredImages(self._own_folder, name=self.photos.name)

    def features(self, device: torch.device, trainer: Trainer | None = None) -> Tensor:
        """``(N, F)`` features that clients extract; missing images and features are computed.

        Args:
            device: device of the computation.
            trainer: Trainer whose processes share the images; each of them must call this.

        Raises:
            InputError: the folder is not writable.
        """
        rank = 0
        world = 1
        if trainer is not None:
            rank = trainer.global_rank
            world = trainer.world_size
        path = self._own_folder / "features.safetensors"
        # Rank zero decides for all, because ranks may see a file of a shared folder at different times.
        is_cached = path.is_file()
        if trainer is not None:
            is_cached = trainer.strategy.broadcast(is_cached)
        if is_cached:
            cached: Tensor = load_file(path)["features"]
            return cached
        try:
            self._make(device, rank, world)
            if trainer is not None:
                trainer.strategy.barrier("images made")
            features = self._extract_from(self.sent, device, rank, world)
            # Each process has the features of its share and zeros elsewhere.
            if world > 1:
                torch.distributed.all_reduce(features)
            features = features.cpu()
            if rank == 0:
                write_whole(path, save({"features": features}))
        except OSError as error:
            raise InputError(
                expected="disk space and permission to write images and features",
                found=f"{error.strerror or error} in {self._own_folder}",
                way_out="Free disk space, or set another folder: FEDLEAK_CACHE=DIR.",
            ) from error
        return features

    def targets(self, numbers: Tensor | None = None) -> Tensor | None:
        """Target features ``(N, F)`` of the manipulation, for all images or given numbers; None without targets."""
        if self.manipulation is None:
            return None
        if numbers is None:
            numbers = torch.tensor(self.numbers)
        width = self.network.num_features
        return self.manipulation.targets(numbers, width, partitions=self.partitions, seed=self.seed)

    def draw(self, items: int, generator: torch.Generator) -> Tensor:
        """Positions ``(R,)`` of images drawn at random, equally many of each part, in the order of the parts.

        Raises:
            InputError: there are too few images.
        """
        part = torch.tensor(self.numbers) % self.partitions
        chosen = []
        for number in range(self.partitions):
            of_part = (part == number).nonzero().flatten()
            # Shares of the items differ by one at most, and sum up to all of them.
            count = items * (number + 1) // self.partitions - items * number // self.partitions
            require(
                count <= len(of_part),
                f"{items} items of {len(self.numbers)} images, as many of each of {self.partitions} parts",
                f"{len(of_part)} images of part {number}",
                "Use more images, fewer features or a smaller ratio.",
            )
            chosen.append(of_part[torch.randperm(len(of_part), generator=generator)[:count]])
        return torch.cat(chosen)

    def original_features(self, device: torch.device) -> Tensor:
        """``(N, F)`` features of the original images."""
        return self._extract_from(self.photos, device, 0, 1).cpu()

    def _make(self, device: torch.device, rank: int, world: int) -> None:
        """Manipulates this process's share of the missing images and writes them as 8-bit PNG files."""
        target = self.sent
        manipulation = self.manipulation
        if manipulation is None or not isinstance(target, StoredImages):
            return
        network = self.network.to(device)
        fitting = network.classifier.out_features == self.photos.classes

        def work(pixels: Tensor, numbers: Tensor) -> Tensor:
            labels = self.photos.labels(numbers.tolist()) if fitting else None
            return manipulation.perturb(network, pixels, targets=self.targets(numbers), labels=labels)

        for batch in self._share(rank, world, "images"):
            missing = []
            for position in batch:
                number = self.numbers[position]
                if not target.path(number).is_file():
                    missing.append(number)
            if not missing:
                continue
            pixels = self.photos.pixels(missing, network.transform.crop).to(device) / 255
            perturbed = halved_to_memory(work, pixels, torch.tensor(missing))
            sent = as_bytes(perturbed)
            # How far rounding to bytes moves what the network gets of an image.
            difference = network.normalise(sent / 255) - network.normalise(perturbed)
            changes = difference.square().mean((1, 2, 3)).tolist()
            for number, image, change in zip(missing, sent.cpu(), changes, strict=True):
                target.write(number, image, round_trip=change)

    @torch.no_grad()
    def _extract_from(self, source: ImageSet, device: torch.device, rank: int, world: int) -> Tensor:
        """``(N, F)`` features of this process's share of the images, zero for the others."""
        network = self.network.to(device)
        crop = network.transform.crop
        # Stored images are cropped already.
        source_crop = crop
        if isinstance(source, StoredImages):
            source_crop = Crop(crop.size, crop.size)
        features = torch.zeros(len(self.numbers), network.num_features, device=device)
        for batch in self._share(rank, world, "features"):
            pixels = source.pixels([self.numbers[position] for position in batch], source_crop)
            features[batch] = network(pixels.to(device) / 255)
        return features

    def _share(self, rank: int, world: int, what: str) -> Iterator[range]:
        """Positions of the images in this process's batches, which do not depend on the number of processes."""
        every = range(len(self.numbers))
        size = self.batch_size
        batches = [every[start : start + size] for start in every[::size]]
        yield from tqdm(batches[rank::world], desc=what, disable=not self.progress or rank > 0, dynamic_ncols=True)

    @functools.cached_property
    def _own_folder(self) -> Path:
        """Cache folder of this gallery."""
        described = f"{self.photos.fingerprint} {self.extractor.fingerprint} {len(self.numbers)}"
        if self.manipulation is not None:
            described += f" {self.manipulation} {self.partitions} {self.seed}"
        key = hashlib.sha256(described.encode()).hexdigest()[:12]
        kind = "real" if self.manipulation is None else self.manipulation.name
        extractor = self.extractor.name.replace(":", "-")
        return self.folder / f"{self.photos.name}-{extractor}-{kind}-{key}"


def as_bytes(pixels: Tensor) -> Tensor:
    """8-bit pixels of an image file, from pixels in [0, 1]."""
    return (pixels * 255).round().clamp(0, 255).to(torch.uint8)


def halved_to_memory(work: Callable[[Tensor, Tensor], Tensor], images: Tensor, targets: Tensor) -> Tensor:
    """Result of `work` on a batch, which is halved repeatedly if the device's memory is too small."""
    try:
        return work(images, targets)
    except torch.OutOfMemoryError:
        if len(images) == 1:
            raise
    middle = len(images) // 2
    halves = (slice(None, middle), slice(middle, None))
    return torch.cat([halved_to_memory(work, images[half], targets[half]) for half in halves])
