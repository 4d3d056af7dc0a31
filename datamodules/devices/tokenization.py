"""Conversion of posts into token numbers, the same for users' posts and background text."""

import collections
import html
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedleak.client.network_tokens import NetworkTokens, network_tokens
from fedleak.core.errors import require
from fedleak.datamodules.devices.user_examples import UNDATED, Dropped, OwnedExamples
from fedleak.datamodules.devices.user_filter import Ints, Posts

PADDING = 0
"""Number after the last word of a text."""
UNKNOWN = 1
"""Number of any word that is not in the vocabulary."""
RESERVED = 2
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+|\n+|\s{3,}")
"""Full stop, question or exclamation mark before a space; end of a line; or the run of spaces that Kaggle's file of the
Blog corpus has instead of an empty line."""
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
"""Letters and digits of any script, with apostrophes between them."""


@dataclass(frozen=True, kw_only=True)
class TokenizationOptions:
    """Options of the conversion.

    Attributes:
        tokens: folder of a pretrained network with its ``tokenizer.json``: texts become the tokens that this network
            reads, with case and punctuation. None for words, as in the paper.
        vocabulary: size of the vocabulary, including padding and the unknown word: 5,000 for Blog, 1,000 for Yelp
            (section 5). Its words are the most frequent of the selected users. A network's tokens are all of its own.
        words: words of an example; further ones are cut off. The paper does not give this number. Of a network's
            tokens, it counts those that the network has around every text too.
        fewest_words: shorter examples are left out; the prediction of a next word needs two.
        repeats: ``drop`` keeps the first of a user's equal examples, so that no text is on both of its devices;
            ``keep`` keeps all.
    """

    tokens: Path | None = None
    vocabulary: int = 5000
    words: int = 32
    fewest_words: int = 2
    repeats: Literal["drop", "keep"] = "drop"

    def __post_init__(self) -> None:
        limits = {"vocabulary": 3, "words": 1, "fewest_words": 1}
        for name, least in limits.items():
            value = getattr(self, name)
            require(value >= least, f"{name} of at least {least}", value, "Give a larger number.")


def sentences_of(text: str) -> list[str]:
    r"""The sentences of a text, some of them possibly empty.

    >>> sentences_of('He left. "Why?" Nobody knew!\nThe end')
    ['He left.', '"Why?', 'Nobody knew!', 'The end']
    """
    return _SENTENCE_END.split(text)


def words_of(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation, as Keras' tokeniser (used by the paper) splits them.

    >>> words_of("Don't panic &amp; CARRY-on, 2 days")
    ["don't", 'panic', 'carry', 'on', '2', 'days']
    """
    unescaped = html.unescape(text) if "&" in text else text
    # The typographic apostrophe counts as the plain one.
    return _WORD.findall(unescaped.lower().replace("\u2019", "'"))


class Vocabulary:
    """Numbers of words: 0 is padding, 1 an unknown word, and known words count from 2.

    Args:
        words: known words, each once, the most frequent first.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        self._numbers = {word: number for number, word in enumerate(self.words, RESERVED)}
        require(
            len(self._numbers) == len(self.words),
            "every word of a vocabulary once",
            "one twice",
            "Leave repetitions out.",
        )

    @classmethod
    def most_frequent(cls, texts: Iterable[Sequence[str]], size: int) -> "Vocabulary":
        """The most frequent words, ties in alphabetical order; `size` includes padding and the unknown word."""
        counts = collections.Counter(itertools.chain.from_iterable(texts))
        # By falling count, and then by word.
        ordered = sorted(counts, key=lambda word: (-counts[word], word))
        known_words = max(0, size - RESERVED)
        return cls(ordered[:known_words])

    def __len__(self) -> int:
        return RESERVED + len(self.words)

    def known_number(self, word: str) -> int | None:
        """The word's number; None if it is unknown."""
        return self._numbers.get(word.lower())

    def encode(self, texts: Sequence[Sequence[str]], length: int) -> Tensor:
        """``(N, L)`` int64 numbers of the first L = `length` words of N texts, padded with 0."""
        # One pass over all words into a flat array, and from there into the rows: a call for each text would be slow.
        lengths = np.fromiter((min(len(text), length) for text in texts), np.int64, len(texts))
        number_of = self._numbers
        words = itertools.chain.from_iterable(text[:length] for text in texts)
        flat = np.fromiter((number_of.get(word, UNKNOWN) for word in words), np.int64, int(lengths.sum()))
        encoded = np.full((len(texts), length), PADDING, np.int64)
        encoded[np.arange(length) < lengths[:, None]] = flat
        return torch.from_numpy(encoded)


@dataclass(frozen=True)
class Tokens:
    """Texts as words, or as a network's tokens.

    Attributes:
        words: words of ``M`` examples, or numbers of their tokens.
        sources: ``(M,)`` int64 ascending numbers of the texts that they come from.
        short: number of examples left out because they have too few words.
    """

    words: Sequence[Sequence[Any]]
    sources: Ints
    short: int


def tokens_of(texts: Sequence[str], unit: Literal["sentence", "text"], options: TokenizationOptions) -> Tokens:
    """Splits texts into examples of enough words: sentences (Blog, section 5 iii) or whole texts (Yelp)."""
    parts: list[str] = []
    part_sources: list[int] = []
    for number, text in enumerate(texts):
        parts_of_text = sentences_of(text) if unit == "sentence" else [text]
        parts += parts_of_text
        part_sources += [number] * len(parts_of_text)
    words_of_parts = _words_of_parts(parts, options.tokens)
    long_enough = [number for number, words in enumerate(words_of_parts) if len(words) >= options.fewest_words]
    with_any_word = sum(bool(words) for words in words_of_parts)
    return Tokens(
        words=[words_of_parts[number] for number in long_enough],
        sources=np.array([part_sources[number] for number in long_enough], np.int64),
        short=with_any_word - len(long_enough),
    )


def _words_of_parts(parts: Sequence[str], folder: Path | None) -> Sequence[Sequence[Any]]:
    """Words of each part of a text, or the tokens that a network reads of it."""
    if folder is None:
        return [words_of(part) for part in parts]
    # Spaces at the ends of a sentence would be tokens of their own.
    return network_tokens(folder).split([html.unescape(part).strip() for part in parts])


def encode_posts(
    posts: Posts,
    unit: Literal["sentence", "text"],
    options: TokenizationOptions,
    *,
    wordless: Literal["error", "drop"] = "error",
    users_left_out: int = 0,
) -> tuple[OwnedExamples, Vocabulary | NetworkTokens]:
    """Examples of the selected users, grouped by post, and their vocabulary."""
    tokens = tokens_of(posts.texts, unit, options)
    vocabulary: Vocabulary | NetworkTokens
    if options.tokens is None:
        vocabulary = Vocabulary.most_frequent(tokens.words, options.vocabulary)
    else:
        vocabulary = network_tokens(options.tokens)
    features = vocabulary.encode(tokens.words, options.words)
    # Users without an example are left out or refused, and the others numbered again.
    owners = posts.owners[tokens.sources]
    owner_ids, numbers = np.unique(owners, return_inverse=True)
    silent = np.setdiff1d(posts.owners, owner_ids)
    require(
        not len(silent) or (wordless == "drop" and len(owner_ids)),
        f"an example of {options.fewest_words} words of every user",
        f"none of user {next(iter(silent), None)} ({len(silent)} such users)",
        "Set text.fewest_words lower, or devices.too_few: drop to leave them out.",
    )
    # A user's example that equals an earlier one adds nothing but could be on both devices.
    first = _first_of_each(features, numbers) if options.repeats == "drop" else np.arange(len(owners))
    days = posts.days[tokens.sources][first]
    examples = OwnedExamples(
        features=features[torch.from_numpy(first)],
        labels=torch.from_numpy(posts.labels[tokens.sources][first]),
        owners=torch.from_numpy(numbers[first].astype(np.int64)),
        days=torch.from_numpy(days),
        groups=torch.from_numpy(tokens.sources[first]),
        owner_ids=torch.from_numpy(owner_ids),
        dropped=Dropped(
            unparsable=posts.unparsable.count,
            lines=tuple(posts.unparsable.lines),
            undated=int((days == UNDATED).sum()),
            short=tokens.short,
            cut=sum(len(tokens.words[number]) > options.words for number in first.tolist()),
            repeated=len(owners) - len(first),
            users=users_left_out + len(silent),
        ),
    )
    return examples, vocabulary


def _first_of_each(features: Tensor, owners: Ints) -> Ints:
    """Ascending numbers of the first of every user's equal examples."""
    keys = np.concatenate([owners[:, None], features.numpy()], axis=1)
    rows = np.ascontiguousarray(keys.astype(np.int32))
    # Each row as one value of as many bytes: numpy sorts these faster than rows.
    row_type = np.dtype((np.void, rows.itemsize * rows.shape[1]))
    values = rows.view(row_type).reshape(-1)
    _, first = np.unique(values, return_index=True)
    return np.sort(first).astype(np.int64)
