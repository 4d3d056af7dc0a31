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
    # Text m with word w is the number m W + w; each such pair counts once, however often the text has the word.
    text_numbers = torch.arange(len(texts))[:, None]
    pairs = torch.unique(text_numbers * words + texts.clamp(max=words - 1))
    words_of_pairs = pairs % words
    # Half a text more with and half a text more without the word: no frequency is 0 or 1.
    counts: Tensor = (words_of_pairs.bincount(minlength=words) + 0.5).double()
    return counts / (len(texts) + 1)


def expected_words(view: RoundView, words: int) -> Tensor | None:
    """``(V, W)`` probability that each client's texts have each word, see `popular-words`; None without texts."""
    frequency = word_frequencies(view, words)
    if frequency is None:
        return None
    # 1 - (1 - q_w)^N of a client with N texts.
    log_absent = (-frequency.clamp(max=1 - 1e-9)).log1p()
    probabilities = -torch.expm1(view.example_counts[:, None] * log_absent)
    # Word 0 is padding.
    probabilities[:, 0] = 0
    return probabilities
