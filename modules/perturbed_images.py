"""Manipulates a whole set of images: in batches, on every device there is, and from where it was stopped."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from lightning import LightningModule, Trainer
from torch import Tensor
from torch.utils.data import DataLoader, Subset

from datamodules.image_set import Crop, CroppedImages, ImageSet, StoredImages
from modules.fast_gradient_sign import fast_gradient_sign
from modules.indirect_manipulation import PixelSearch, as_bytes, halved_to_memory, manipulate
from modules.nets.feature_extractor import FeatureExtractor
from protocol.partitions import partitioned_noise
from protocol.seeding import generator_for

Batch = tuple[Tensor, Tensor]
"""Numbers ``(N,)`` and pixels ``(N, 3, h, w)`` uint8 of images."""


@dataclass(frozen=True, kw_only=True)
class Perturbation:
    """What is done to images.

    Attributes:
        kind: ``noise`` for features that approach rectified noise, ``fgsm`` for the fast gradient sign method.
        partitions: parts of the features; image n has its noise in part n modulo the parts (the paper: two halves).
        scale: standard deviation of the noise (the paper: 4).
        search: how pixels are searched for the noise.
        epsilon: change of every pixel by FGSM.
        seed: of the noise.
    """

    kind: Literal["noise", "fgsm"] = "noise"
    partitions: int = 2
    scale: float = 4.0
    search: PixelSearch = field(default_factory=PixelSearch)
    epsilon: float = 0.1
    seed: int = 0

    def targets(self, numbers: Sequence[int], features: int) -> Tensor:
        """Features ``(N, F)`` that the images of these numbers are to approach, whatever batch they are in."""
        drawn = [
            partitioned_noise(
                torch.tensor([number % self.partitions]),
                features,
                partitions=self.partitions,
                scale=self.scale,
                generator=generator_for(self.seed, "feature target", number),
            )
            for number in numbers
        ]
        return torch.cat(drawn)


class Perturber(LightningModule):
    """Perturbs batches of images and writes them as 8-bit PNG; `lightning.Trainer.predict` deals out the batches.

    Args:
        images: what is perturbed; every device takes its share.
        extractor: what clients extract features with.
        perturbation: what is done.
        target: where the images go.
        batch_size: images at once on each device.
    """

    def __init__(
        self,
        images: CroppedImages,
        extractor: FeatureExtractor,
        perturbation: Perturbation,
        target: StoredImages,
        *,
        batch_size: int,
    ) -> None:
        super().__init__()
        self.images = images
        self.extractor = extractor
        self.perturbation = perturbation
        self.target = target
        self.batch_size = batch_size

    def predict_dataloader(self) -> DataLoader[tuple[int, Tensor]]:
        """This device's share of the images."""
        share = range(self.trainer.global_rank, len(self.images), self.trainer.world_size)
        return DataLoader(Subset(self.images, share), batch_size=self.batch_size)

    def predict_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Perturbs and writes one batch; returns its numbers."""
        numbers, pixels = batch[0].tolist(), batch[1].to(torch.float32) / 255
        targets = self.perturbation.targets(numbers, self.extractor.num_features).to(pixels)
        found = halved_to_memory(self._perturbed, pixels, targets)
        sent = as_bytes(found)
        normalise = self.extractor.normalise
        changes = (normalise(sent / 255) - normalise(found)).square().mean((1, 2, 3)).tolist()
        for number, image, change in zip(numbers, sent.cpu(), changes, strict=True):
            self.target.write(number, image, round_trip=change)
        return batch[0]

    def _perturbed(self, pixels: Tensor, targets: Tensor) -> Tensor:
        if self.perturbation.kind == "fgsm":
            return fast_gradient_sign(self.extractor, pixels, epsilon=self.perturbation.epsilon)
        return manipulate(self.extractor, pixels, targets, self.perturbation.search)


def perturb(
    source: ImageSet,
    numbers: Sequence[int],
    extractor: FeatureExtractor,
    perturbation: Perturbation,
    folder: Path,
    *,
    batch_size: int = 16,
    progress: bool = True,
    accelerator: str = "auto",
    devices: int | None = None,
) -> StoredImages:
    """Perturbs images, those excepted that are there already.

    Args:
        source: the originals.
        numbers: which of them.
        extractor: what clients extract features with.
        perturbation: what is done to them.
        folder: where the images go; it must be of this perturbation alone.
        batch_size: images at once on each device; fewer where its memory does not hold them.
        progress: show a bar with the time left.
        accelerator: where to run, as Lightning names it.
        devices: how many devices share the images out among them, None for all GPUs.
    """
    target = StoredImages(folder, name=source.name)
    todo = [number for number in numbers if not target.path(number).is_file()]
    if todo:
        count = devices or max(1, torch.cuda.device_count() if accelerator in ("auto", "cuda", "gpu") else 1)
        images = CroppedImages(source, todo, extractor.transform.crop)
        module = Perturber(images, extractor, perturbation, target, batch_size=batch_size)
        _trainer(accelerator, count, progress=progress).predict(module, return_predictions=False)
    return target


def _trainer(accelerator: str, devices: int, *, progress: bool) -> Trainer:
    """Runs batches on one device, or deals them out to several in processes of their own."""
    options: dict[str, Any] = {"strategy": "ddp_spawn"} if devices > 1 else {}
    return Trainer(
        accelerator=accelerator,
        devices=devices,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=progress,
        enable_model_summary=False,
        inference_mode=False,
        use_distributed_sampler=False,
        **options,
    )


@torch.no_grad()
def extract(source: ImageSet, numbers: Sequence[int], extractor: FeatureExtractor, *, batch_size: int = 64) -> Tensor:
    """Features ``(N, F)`` of images as a client extracts them, on the first GPU where there is one."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    crop = extractor.transform.crop
    own = Crop(crop.size, crop.size) if isinstance(source, StoredImages) else crop
    moved = extractor.to(device)
    found = [
        moved(source.pixels(numbers[start : start + batch_size], own).to(device) / 255).cpu()
        for start in range(0, len(numbers), batch_size)
    ]
    return torch.cat(found)
