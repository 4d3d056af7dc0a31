"""Mitigations on devices: background examples replace or join a device's own (deanonymization, section 7.1)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy.sparse import csr_array
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.preprocessing import normalize
from torch import Tensor

from fedleak.core.errors import require

_DIMENSIONS = 50
"""Dimensions of the features of text."""
_COMMON = 2
"""Smaller token numbers are padding and unknown words, which do not describe a text."""
_THUMBNAIL = 8
"""Height and width to which images are averaged."""


@dataclass(frozen=True, kw_only=True)
class Mitigation:
    """How anonymous devices use background examples.

    Attributes:
        kind: ``bkg-repl`` replaces a share of the examples; ``rand-aug`` adds to them (equation 8); ``mm-aug`` adds
            from one cluster of the background, which each device draws (equation 9).
        amount: alpha, as a share of the device's examples; at most 1 if they are replaced.
        modes: clusters of ``mm-aug`` (the paper: 100 for PIPA, 500 for OpenImages, 300 for Blog and Yelp).
        adaptive: whether the adversary, who knows the background and this mitigation, applies it to its own devices too
            before it learns from their messages; the paper's does not.
    """

    kind: Literal["bkg-repl", "rand-aug", "mm-aug"]
    amount: float
    modes: int = 300
    adaptive: bool = False

    def __post_init__(self) -> None:
        most = 1.0 if self.kind == "bkg-repl" else float("inf")
        require(
            self.kind in ("bkg-repl", "rand-aug", "mm-aug") and 0 <= self.amount <= most and self.modes >= 1,
            "kind bkg-repl with an amount from 0 to 1, or rand-aug or mm-aug with one of at least 0",
            f"{self.kind}, amount {self.amount}, modes {self.modes}",
            "The paper has alpha 0 to 1 for replacing, 0 to 2 for adding.",
        )


def mixed_in(
    device_examples: Tensor,
    mitigation: Mitigation,
    *,
    background: Tensor,
    modes: Tensor | None,
    generator: torch.Generator,
) -> Tensor:
    """Training examples of one device after the mitigation.

    Args:
        device_examples: ``(n,)`` numbers of its examples.
        mitigation: the mitigation.
        background: ``(M,)`` numbers of the background examples, which repeat only if more than M are drawn.
        modes: ``(M,)`` cluster of each; needed for ``mm-aug``.
        generator: source of this device's draws.

    Returns:
        Numbers of examples, first those that are left of its own.
    """
    wanted = round(mitigation.amount * len(device_examples))
    candidates = background
    if mitigation.kind == "mm-aug":
        # All added examples are of one mode, drawn among those that have examples.
        assert modes is not None
        present = torch.unique(modes)
        mode = present[torch.randint(len(present), (), generator=generator)]
        candidates = background[modes == mode]
    if mitigation.kind == "bkg-repl":
        # As many of the device's own leave as are added.
        order = torch.randperm(len(device_examples), generator=generator)
        device_examples = device_examples[order[wanted:]].sort().values
    # Each candidate comes once before any comes again.
    complete_rounds, rest = divmod(wanted, len(candidates))
    drawn = []
    for size in [len(candidates)] * complete_rounds + [rest]:
        drawn.append(torch.randperm(len(candidates), generator=generator)[:size])
    return torch.cat([device_examples, candidates[torch.cat(drawn)]])


def background_modes(features: Tensor, modes: int, *, generator: torch.Generator) -> Tensor:
    """``(M,)`` cluster of every background example, by k-means on its features.

    The paper clusters features of a MobileNet trained on ImageNet, for text too. Here texts have 50 features by latent
    semantic analysis of their words, weighted by rarity, and images have their thumbnails: the network's weights need a
    download, and do not describe text.

    Args:
        features: ``(M, L)`` int64 token numbers, or ``(M, channels, height, width)`` uint8 images.
        modes: number of clusters.
        generator: source of the draws.
    """
    expected = f"at least {modes} background examples for as many modes"
    require(len(features) >= modes, expected, len(features), "Set a smaller number of modes.")
    seed = int(torch.randint(2**31, (), generator=generator))
    # Text has two dimensions, images four.
    vectors = _of_text(features, seed) if features.dim() == 2 else _of_images(features)
    clustering = MiniBatchKMeans(modes, random_state=seed, n_init=1, batch_size=max(1024, modes))
    return torch.from_numpy(clustering.fit_predict(vectors)).long()


def _of_text(tokens: Tensor, seed: int) -> np.ndarray:
    """``(M, 50)`` features of length one."""
    # Latent semantic analysis: counts of words, times the logarithm of the inverse share of texts that have the word,
    # normalised, and projected onto the first singular vectors.
    text, position = (tokens >= _COMMON).nonzero(as_tuple=True)
    words = tokens[text, position].numpy()
    width = int(tokens.max()) + 1
    counts = csr_array((np.ones(len(words), np.float32), (text.numpy(), words)), shape=(len(tokens), width))
    texts_with_word = np.bincount(counts.tocoo().coords[1], minlength=width)
    inverse_frequency = np.log(len(tokens) / np.maximum(texts_with_word, 1)).astype(np.float32)
    weighted = counts.multiply(inverse_frequency[None])
    dimensions = min(_DIMENSIONS, width - 1)
    projected = TruncatedSVD(dimensions, random_state=seed).fit_transform(normalize(weighted.tocsr()))
    return np.asarray(normalize(projected))


def _of_images(images: Tensor) -> np.ndarray:
    thumbnails = torch.nn.functional.adaptive_avg_pool2d(images.float(), _THUMBNAIL)
    return np.asarray(normalize(thumbnails.flatten(1).numpy()))
