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
    own: Tensor, mitigation: Mitigation, *, background: Tensor, modes: Tensor | None, generator: torch.Generator
) -> Tensor:
    """Training examples of one device after the mitigation.

    Args:
        own: ``(n,)`` numbers of its examples.
        mitigation: the mitigation.
        background: ``(M,)`` numbers of the background examples, which repeat only if more than M are drawn.
        modes: ``(M,)`` cluster of each; needed for ``mm-aug``.
        generator: source of this device's draws.

    Returns:
        Numbers of examples, first those that are left of its own.
    """
    wanted = round(mitigation.amount * len(own))
    crowd = background
    if mitigation.kind == "mm-aug":
        assert modes is not None
        present = torch.unique(modes)
        crowd = background[modes == present[torch.randint(len(present), (), generator=generator)]]
    if mitigation.kind == "bkg-repl":
        own = own[torch.randperm(len(own), generator=generator)[wanted:]].sort().values
    whole, rest = divmod(wanted, len(crowd))
    rounds = [torch.randperm(len(crowd), generator=generator)[:size] for size in [len(crowd)] * whole + [rest]]
    return torch.cat([own, crowd[torch.cat(rounds)]])


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
    described = _of_text(features, seed) if features.dim() == 2 else _of_images(features)
    machine = MiniBatchKMeans(modes, random_state=seed, n_init=1, batch_size=max(1024, modes))
    return torch.from_numpy(machine.fit_predict(described)).long()


def _of_text(tokens: Tensor, seed: int) -> np.ndarray:
    """``(M, 50)`` features of length one."""
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
