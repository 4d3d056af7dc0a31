"""The words that a model knows, by number."""

import collections
import itertools
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from protocol.errors import InputError

PADDING = 0
"""Behind the last word."""
UNKNOWN = 1
"""Any word that is not in the vocabulary."""
RESERVED = 2


class Vocabulary:
    """Numbers of words: 0 is padding, 1 an unknown word, from 2 on the words.

    Args:
        words: known words, each once, the most frequent first.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        self._numbers = {word: number for number, word in enumerate(self.words, RESERVED)}
        if len(self._numbers) != len(self.words):
            raise InputError(
                expected="every word of a vocabulary once", found="one twice", way_out="Leave repetitions out."
            )

    @classmethod
    def most_frequent(cls, texts: Iterable[Sequence[str]], size: int) -> "Vocabulary":
        """The words that occur most often, equal ones in the order of the alphabet.

        Args:
            texts: words of every text.
            size: numbers of the vocabulary, padding and unknown among them (5,000 and 1,000 in section 5); fewer where
                there are not as many words.
        """
        counts = collections.Counter(itertools.chain.from_iterable(texts))
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return cls([word for word, _ in ordered[: max(0, size - RESERVED)]])

    def __len__(self) -> int:
        return RESERVED + len(self.words)

    def number(self, word: str) -> int:
        """The word's number."""
        return self._numbers.get(word, UNKNOWN)

    def encode(self, texts: Sequence[Sequence[str]], length: int) -> Tensor:
        """The first words of every text.

        Args:
            texts: words of N texts.
            length: words L that are kept of each.

        Returns:
            ``(N, L)`` int64, padded with 0.
        """
        kept = np.fromiter((min(len(text), length) for text in texts), np.int64, len(texts))
        numbers, unknown = self._numbers, UNKNOWN
        flat = np.fromiter(
            (numbers.get(word, unknown) for text in texts for word in text[:length]), np.int64, int(kept.sum())
        )
        encoded = np.full((len(texts), length), PADDING, np.int64)
        encoded[np.arange(length) < kept[:, None]] = flat
        return torch.from_numpy(encoded)
