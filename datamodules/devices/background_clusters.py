"""Clusters of the background examples: k-means on their features, the modes of a data set (section 7.1, mm-aug)."""

import numpy as np
import torch
from scipy.sparse import csr_array
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.preprocessing import normalize
from torch import Tensor

from protocol.errors import InputError

_DIMENSIONS = 50
"""Of the features of text."""
_COMMON = 2
"""Token numbers below it pad or are unknown, and tell nothing of a text."""
_THUMBNAIL = 8
"""Height and width to which images are averaged."""


def background_modes(features: Tensor, modes: int, *, generator: torch.Generator) -> Tensor:
    """``(M,)`` cluster of every background example.

    The paper clusters the features of a MobileNet that was trained on ImageNet, for text too. Its weights may not be at
    hand, and say nothing of text: here texts have their words, weighed by rarity and brought to 50 dimensions by
    latent semantic analysis, and images their thumbnails.

    Args:
        features: ``(M, L)`` int64 token numbers, or ``(M, channels, height, width)`` uint8 images.
        modes: clusters.
        generator: source of the draws.

    Raises:
        InputError: there are fewer examples than clusters.
    """
    if len(features) < modes:
        raise InputError(
            expected=f"at least {modes} background examples for as many modes",
            found=str(len(features)),
            way_out="Set a smaller number of modes.",
        )
    seed = int(torch.randint(2**31, (), generator=generator))
    described = _of_text(features, seed) if features.dim() == 2 else _of_images(features)
    machine = MiniBatchKMeans(modes, random_state=seed, n_init=1, batch_size=max(1024, modes))
    return torch.from_numpy(machine.fit_predict(described)).long()


def _of_text(tokens: Tensor, seed: int) -> np.ndarray:
    """``(M, 50)`` of length one."""
    text, place = (tokens >= _COMMON).nonzero(as_tuple=True)
    words = tokens[text, place].numpy()
    width = int(tokens.max()) + 1
    counts = csr_array((np.ones(len(words), np.float32), (text.numpy(), words)), shape=(len(tokens), width))
    spread = np.bincount(counts.tocoo().coords[1], minlength=width)
    weighed = counts.multiply(np.log(len(tokens) / np.maximum(spread, 1)).astype(np.float32)[None])
    dimensions = min(_DIMENSIONS, width - 1)
    analysed = TruncatedSVD(dimensions, random_state=seed).fit_transform(normalize(weighed.tocsr()))
    return np.asarray(normalize(analysed))


def _of_images(images: Tensor) -> np.ndarray:
    small = torch.nn.functional.adaptive_avg_pool2d(images.float(), _THUMBNAIL)
    return np.asarray(normalize(small.flatten(1).numpy()))
