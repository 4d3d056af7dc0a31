"""Frequencies of words in texts that the server has."""

import torch
from torch import Tensor

from fedleak.core.view import RoundView

TEXTS = "prior_features"
"""Auxiliary texts ``(M, L)`` of token numbers, padded with 0."""


def word_frequencies(view: RoundView, words: int) -> Tensor | None:
    """``(W,)`` share of the auxiliary texts that have each word, half a text more; None without texts."""
    texts = view.auxiliary.get(TEXTS)
    if texts is None or texts.dim() != 2 or texts.is_floating_point():
        return None
    once = torch.unique(torch.arange(len(texts))[:, None] * words + texts.clamp(max=words - 1)) % words
    counts: Tensor = (once.bincount(minlength=words) + 0.5).double()
    return counts / (len(texts) + 1)


def expected_words(view: RoundView, words: int) -> Tensor | None:
    """``(V, W)`` probability that each client's texts have each word, see `popular-words`; None without texts."""
    frequency = word_frequencies(view, words)
    if frequency is None:
        return None
    likely = -torch.expm1(view.example_counts[:, None] * (-frequency.clamp(max=1 - 1e-9)).log1p())
    likely[:, 0] = 0
    return likely
