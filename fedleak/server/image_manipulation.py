"""Base class of image manipulations by a malicious server, and the likeness of images to their originals."""

import abc
from dataclasses import dataclass

import torch
from torch import Tensor
from torchmetrics.functional.image import peak_signal_noise_ratio, structural_similarity_index_measure

from fedleak.client.feature_extractor import FeatureExtractor
from fedleak.core.errors import InputError
from fedleak.server.deviation import Deviation


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageManipulation(Deviation, abc.ABC):
    """Base class of manipulations of images whose features the clients extract.

    References:
        [Pham25], section III.C.3.
    """

    part = "shows"

    @abc.abstractmethod
    def perturb(
        self, extractor: FeatureExtractor, pixels: Tensor, *, targets: Tensor | None, labels: Tensor | None
    ) -> Tensor:
        """Manipulated images ``(N, 3, h, w)`` in [0, 1].

        Args:
            extractor: the clients' frozen feature extractor.
            pixels: ``(N, 3, h, w)`` in [0, 1].
            targets: ``(N, F)`` features to approach, see `targets`.
            labels: ``(N,)`` classes of the images under the extractor's classifier, -1 if unknown; None if all are.
        """

    def targets(self, numbers: Tensor, features: int, *, partitions: int, seed: int) -> Tensor | None:
        """Target features ``(N, F)`` of the images with these numbers, which do not depend on a batch; None without.

        Of the parts of the features, image n belongs to part ``n % partitions``.
        """
        return None

    def drawn(self, items: int, features: int, *, partitions: int, generator: torch.Generator) -> Tensor:
        """Features ``(R, F)`` of manipulated items for data with drawn features instead of images.

        Raises:
            InputError: the manipulation applies only to images.
        """
        raise InputError(
            expected=f"images for the manipulation {self.name!r}",
            found="items of drawn features",
            way_out="Choose data with images, or another manipulation.",
        )


def ssim(images: Tensor, originals: Tensor) -> Tensor:
    """``(N,)`` structural similarity of images ``(N, 3, h, w)`` in [0, 1] to their originals, 1 for equal images.

    References:
        [Wang04].
    """
    similarity = structural_similarity_index_measure(images, originals, reduction="none", data_range=1.0)
    assert isinstance(similarity, Tensor)
    return similarity.reshape(len(images))


def psnr(images: Tensor, originals: Tensor) -> Tensor:
    """``(N,)`` peak signal-to-noise ratio in dB of images ``(N, 3, h, w)`` in [0, 1]; infinite for equal images."""
    return peak_signal_noise_ratio(images, originals, reduction="none", data_range=1.0, dim=(1, 2, 3))
