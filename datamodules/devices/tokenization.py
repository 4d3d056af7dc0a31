"""Posts -> token numbers, the same way for users' posts and for background text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from datamodules.devices.sentences import sentences_of, words_of
from datamodules.devices.user_examples import UNDATED, Dropped, OwnedExamples
from datamodules.devices.user_filter import Ints, Posts
from datamodules.devices.vocabulary import Vocabulary
from protocol.errors import InputError


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """How text becomes examples.

    Attributes:
        vocabulary: its size, with padding and unknown word: 5,000 for Blog, 1,000 for Yelp (section 5). Its words
            are the most frequent of the users that take part.
        words: that are kept of an example; longer ones are cut. The paper does not say how many it keeps.
        fewest_words: shorter examples are left out; a next word needs two.
        repeats: what becomes of an example that its user has already, word for word: ``drop`` keeps the first, so that
            no text is on both of a user's devices; ``keep`` keeps all.
    """

    vocabulary: int = 5000
    words: int = 32
    fewest_words: int = 2
    repeats: Literal["drop", "keep"] = "drop"

    def __post_init__(self) -> None:
        """Refuses what leaves nothing to learn.

        Raises:
            InputError: a number is too small.
        """
        for name, least in (("vocabulary", 3), ("words", 1), ("fewest_words", 1)):
            if getattr(self, name) < least:
                raise InputError(
                    expected=f"{name} of at least {least}", found=str(getattr(self, name)), way_out="Give more."
                )


@dataclass(frozen=True)
class Tokens:
    """Texts as words.

    Attributes:
        words: of ``M`` examples.
        sources: ``(M,)`` int64 ascending numbers of the texts that they come from.
        short: examples left out, because they have too few words.
    """

    words: Sequence[Sequence[str]]
    sources: Ints
    short: int


def tokens_of(texts: Sequence[str], unit: Literal["sentence", "text"], *, fewest_words: int) -> Tokens:
    """Splits texts.

    Args:
        texts: what people wrote.
        unit: an example is a sentence (Blog, section 5 iii), or a whole text (Yelp).
        fewest_words: shorter examples are left out.
    """
    words, sources = list[list[str]](), list[int]()
    examples = 0
    for number, text in enumerate(texts):
        for part in sentences_of(text) if unit == "sentence" else (text,):
            found = words_of(part)
            examples += bool(found)
            if len(found) >= fewest_words:
                words.append(found)
                sources.append(number)
    return Tokens(words, np.array(sources, np.int64), examples - len(words))


def encode_posts(
    posts: Posts,
    unit: Literal["sentence", "text"],
    options: TextOptions,
    *,
    wordless: Literal["error", "drop"] = "error",
    users_left_out: int = 0,
) -> tuple[OwnedExamples, Vocabulary]:
    """Examples of the users that take part, and the vocabulary made of them.

    Args:
        posts: what they wrote.
        unit: see `tokens_of`.
        options: see `TextOptions`.
        wordless: what to do with users who have no example.
        users_left_out: goes into the counts.

    Returns:
        Examples whose groups are the posts, and the vocabulary.

    Raises:
        InputError: a user has no example.
    """
    tokens = tokens_of(posts.texts, unit, fewest_words=options.fewest_words)
    vocabulary = Vocabulary.most_frequent(tokens.words, options.vocabulary)
    features = vocabulary.encode(tokens.words, options.words)
    owners = posts.owners[tokens.sources]
    owner_ids, numbers = np.unique(owners, return_inverse=True)
    silent = np.setdiff1d(posts.owners, owner_ids)
    if len(silent) and (wordless == "error" or not len(owner_ids)):
        raise InputError(
            expected=f"an example of {options.fewest_words} words of every user",
            found=f"none of user {silent[0]} ({len(silent)} such users)",
            way_out="Set text.fewest_words lower, or devices.too_few: drop to leave them out.",
        )
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
            unparsable=posts.unparsable,
            lines=posts.lines,
            undated=int((days == UNDATED).sum()),
            short=tokens.short,
            cut=sum(len(tokens.words[number]) > options.words for number in first.tolist()),
            repeated=len(owners) - len(first),
            users=users_left_out + len(silent),
        ),
    )
    return examples, vocabulary


def encode_background(
    texts: Sequence[str], unit: Literal["sentence", "text"], options: TextOptions, vocabulary: Vocabulary
) -> tuple[Tensor, Ints]:
    """Background text, prepared as the users' is (section 7.1), in the users' vocabulary.

    Returns:
        ``(M, L)`` int64 token numbers, and ``(M,)`` the numbers of the texts that they come from.
    """
    tokens = tokens_of(texts, unit, fewest_words=options.fewest_words)
    return vocabulary.encode(tokens.words, options.words), tokens.sources


def _first_of_each(features: Tensor, owners: Ints) -> Ints:
    """Ascending numbers of the first of every user's equal examples."""
    rows = np.ascontiguousarray(np.concatenate([owners[:, None], features.numpy()], axis=1).astype(np.int32))
    whole = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).reshape(-1)
    return np.sort(np.unique(whole, return_index=True)[1]).astype(np.int64)
