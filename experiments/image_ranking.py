"""RAIFLE's federated ranker of images, tables VIII, XII and XV, as an experiment: images, networks, users, attacks."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from datamodules.image_set import Crop, GeneratedImages, StoredImages
from datamodules.imagenet import ImageNet
from evaluation.runner import Evaluation
from evaluation.scores import Line
from experiments.base import Choice, PaperCell, Scale, Source
from experiments.gallery import Gallery, Size, images_of
from experiments.options import check_names
from experiments.voting import VotingCell, VotingTable, table_cells
from modules.image_quality import psnr, ssim
from modules.perturbed_images import extract
from protocol.seeding import generator_for
from reports.image_panels import image_panels

QUALITY = ("ssim", "psnr", "feature-loss", "feature-loss-before", "loss-ratio", "round-trip")
_SHOWN = 4
"""Images in the figure of a manipulation."""
_AT_ONCE = 64


@dataclass(frozen=True, kw_only=True)
class ImageRanking(VotingTable):
    """A table of this kind; see `VotingTable`.

    Attributes:
        scales: how large it is made, by what ``--scale`` may say.
    """

    known_manipulations = ("none", "fgsm", "noise")
    scales: dict[Scale, Size]

    @classmethod
    def parse(cls, content: dict[str, Any]) -> Self:
        """From a configuration."""
        scales = {name: Size(**size) for name, size in content["scales"].items()}
        return cls(**{**content, "scales": scales})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("data set", self.data, [ImageNet.name, GeneratedImages.name])
        check_names("scale", list(self.scales), ["small", "paper"])
        for size in self.scales.values():
            size.perturbation("noise", 0)

    def size(self, choice: Choice) -> Size:
        """How large it is to be made.

        Raises:
            InputError: the table does not say.
        """
        check_names("scale", [choice.scale], list(self.scales))
        return self.scales[choice.scale]

    def cells(self, choice: Choice) -> Iterator[PaperCell[Any]]:
        """The manipulated images themselves, then the users who vote on them."""
        size = self.size(choice)
        for data in self.names(choice):
            for seed in range(choice.seeds):
                for name in size.extractors:
                    for kind in self.manipulations:
                        if kind != "none" and set(self.metrics) & set(QUALITY):
                            yield QualityCell(self, data, choice, seed, name, kind)
        yield from table_cells(self, choice, _Cell, size.extractors)

    def source(self, data: str, root: str | None) -> Source:
        return images_of(data, root)


@dataclass(frozen=True)
class _Cell(VotingCell[ImageRanking]):
    def kind_of_features(self) -> dict[str, Any]:
        return kind_of_features(self)

    def features(self, directory: Path, item_set: int) -> Tensor:
        gallery = gallery_of(self, self.extractor, self.manipulation, directory)
        found = gallery.features()
        items = found.shape[1] * self.ratio
        return found[gallery.draw(items, generator_for(self.seed, "items", self.ratio, item_set))]


@dataclass(frozen=True)
class QualityCell(PaperCell[ImageRanking]):
    """How near the features of manipulated images came to their targets, and how like the images are to the originals.

    Each of an image's rows is a victim of its own: ``feature-loss`` is the mean squared difference from the target
    after the image was written and read back, ``feature-loss-before`` that of the original, ``loss-ratio`` their
    quotient; ``round-trip`` is the mean squared change of the normalised pixels by writing eight bits.
    """

    extractor: str
    manipulation: str

    @property
    def key(self) -> str:
        return f"{self.data}-{self.choice.scale}-{self.extractor}-{self.manipulation}-quality-seed{self.seed}"

    @property
    def setting(self) -> dict[str, Any]:
        kind = kind_of_features(self)
        return {"data": self.data, "extractor": self.extractor, **kind, "manipulation": self.manipulation}

    def evaluate(self, directory: Path) -> tuple[Evaluation, dict[str, float]]:
        """Makes the images, and measures."""
        start = time.perf_counter()
        gallery = gallery_of(self, self.extractor, self.manipulation, directory)
        after = gallery.features()
        middle = time.perf_counter()
        values = pixel_quality(gallery)
        if self.manipulation == "noise":
            targets = gallery.perturbation.targets(gallery.numbers, after.shape[1])
            before = (extract(gallery.originals, gallery.numbers, gallery.network) - targets).square().mean(1)
            values["feature-loss"] = (after - targets).square().mean(1)
            values["feature-loss-before"] = before
            values["loss-ratio"] = before / values["feature-loss"]
        label, items = "fgsm" if self.manipulation == "fgsm" else "raifle", after.shape[1]
        scores = self.scores(label, values, victims=gallery.numbers, items=items)
        seconds = {"train": middle - start, "attack": time.perf_counter() - middle}
        lines = {label: Line(role="published", family="images")}
        return Evaluation(scores, lines, figures=[self._figure(gallery)]), seconds

    def _figure(self, gallery: Gallery) -> tuple[str, str]:
        shown = gallery.numbers[:_SHOWN]
        crop = gallery.network.transform.crop
        originals = gallery.originals.pixels(shown, crop)
        sent = gallery.sent.pixels(shown, Crop(crop.size, crop.size))
        caption = f"{self.data}, {self.extractor}, {self.manipulation}: originals, what is sent, difference times 8."
        return caption, image_panels(originals, sent)


def pixel_quality(gallery: Gallery) -> dict[str, Tensor]:
    """``(N,)`` likeness of every image to its original, and what eight bits change, by metric."""
    network = gallery.network.cpu()
    crop, stored = network.transform.crop, gallery.sent
    assert isinstance(stored, StoredImages)
    found: dict[str, list[Tensor]] = {"ssim": [], "psnr": []}
    for start in range(0, len(gallery.numbers), _AT_ONCE):
        numbers = gallery.numbers[start : start + _AT_ONCE]
        originals = gallery.originals.pixels(numbers, crop) / 255
        sent = stored.pixels(numbers, Crop(crop.size, crop.size)) / 255
        found["ssim"].append(ssim(sent, originals))
        found["psnr"].append(psnr(sent, originals))
    changes = [stored.round_trip(number) for number in gallery.numbers]
    return {"round-trip": torch.tensor(changes)} | {metric: torch.cat(values) for metric, values in found.items()}


def gallery_of(cell: PaperCell[ImageRanking], extractor: str, manipulation: str, directory: Path) -> Gallery:
    """The images of a cell; they are kept beside the table's cells, for all of these."""
    return Gallery(
        data=cell.data,
        root=cell.choice.root,
        size=cell.table.size(cell.choice),
        name=extractor,
        kind=manipulation,
        seed=cell.seed,
        folder=directory.parents[1] / "images",
        progress=cell.choice.progress,
    )


def kind_of_features(cell: PaperCell[ImageRanking]) -> dict[str, Any]:
    """Keys of the setting that say what the network is like."""
    size = cell.table.size(cell.choice)
    kind: dict[str, Any] = {} if size.features is None else {"features": size.features}
    return (
        kind if size.weights == "pretrained" else {**kind, "weights": "random" if size.weights == "random" else "file"}
    )
