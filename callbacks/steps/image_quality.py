"""Quality of manipulated images: distance of their features from the targets, and similarity to the originals."""

from collections.abc import Iterator

import pandas as pd
import torch
from torch import Tensor

from fedleak.attacks.images.pointwise_matching import PointwiseMatching
from fedleak.client.feature_extractor import Crop
from fedleak.core.errors import InputError
from fedleak.datamodules.images.image_set import StoredImages
from fedleak.datamodules.images.voters import ImageVoters
from fedleak.evaluation.attack_line import line_of
from fedleak.evaluation.evaluation import Evaluation
from fedleak.modules.image_features.gallery import Gallery
from fedleak.modules.learners.image_ranker import ImageRanker
from fedleak.reports.figures.images import manipulated_images
from fedleak.server.image_manipulation import psnr, ssim
from fedleak.tables.after.step import AfterStep
from fedleak.tables.cell_cache import CellRun

_SHOWN = 4
"""Number of images in the figure of a manipulation."""
_AT_ONCE = 64


class ImageQuality(AfterStep):
    """Quality of each image that the server of an `ImageRanker` manipulated; a row is an image, not a client.

    ``feature-loss`` is the mean squared distance of the features from the target after the image was written and read
    back, ``feature-loss-before`` that of the original image, ``loss-ratio`` their quotient; ``ssim`` and ``psnr``
    measure the similarity to the original; ``round-trip`` is the mean squared change of the normalised pixels by
    storage in eight bits. The label is that of gradient matching on these images.
    """

    name = "image-quality"
    metrics = ("ssim", "psnr", "feature-loss", "feature-loss-before", "loss-ratio", "round-trip")

    def rows(self, run: CellRun, evaluation: Evaluation) -> Iterator[pd.DataFrame]:
        module, data = run.build()
        if not isinstance(module, ImageRanker) or not isinstance(data, ImageVoters) or module.manipulation is None:
            raise InputError(
                expected=f"a training of ImageRanker on manipulated images for the step {self.name}",
                found=f"{type(module).__name__} on {type(data).__name__}, manipulation {module.server_manipulation}",
                way_out="Remove the step from `after`, or choose a manipulation.",
            )
        gallery = module.gallery(data)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        after = gallery.features(device)
        targets = gallery.targets()
        values = _pixel_quality(gallery)
        if targets is not None:
            before = (gallery.original_features(device) - targets).square().mean(1)
            # How far features are from what the server wants them to be, before and after the manipulation.
            values["feature-loss"] = (after - targets).square().mean(1)
            values["feature-loss-before"] = before
            values["loss-ratio"] = before / values["feature-loss"]
        attack = PointwiseMatching()
        view = next(run.recording.views(victims_per_view=1))
        label = attack.label(view)
        words = ", ".join(str(value) for value in run.setting.values())
        caption = f"{words}: original images, images sent, and their difference times 8."
        evaluation.figures.append(manipulated_images(*_pixels(gallery, gallery.numbers[:_SHOWN]), caption))
        evaluation.lines[label] = line_of(attack, view)
        yield run.scores(label, values, victims=gallery.numbers, items=after.shape[1])


def _pixel_quality(gallery: Gallery) -> dict[str, Tensor]:
    """``(N,)`` similarity of every image to its original, and change by storage in eight bits, by metric."""
    assert isinstance(gallery.sent, StoredImages)
    similarities: dict[str, list[Tensor]] = {"ssim": [], "psnr": []}
    for start in range(0, len(gallery.numbers), _AT_ONCE):
        batch = gallery.numbers[start : start + _AT_ONCE]
        originals, sent = (pixels / 255 for pixels in _pixels(gallery, batch))
        similarities["ssim"].append(ssim(sent, originals))
        similarities["psnr"].append(psnr(sent, originals))
    changes = [gallery.sent.round_trip(number) for number in gallery.numbers]
    quality = {"round-trip": torch.tensor(changes)}
    for metric, values in similarities.items():
        quality[metric] = torch.cat(values)
    return quality


def _pixels(gallery: Gallery, numbers: list[int]) -> tuple[Tensor, Tensor]:
    """Original and sent images, ``(N, 3, h, w)`` uint8 each."""
    crop = gallery.network.transform.crop
    originals = gallery.photos.pixels(numbers, crop)
    sent = gallery.sent.pixels(numbers, Crop(crop.size, crop.size))
    return originals, sent
