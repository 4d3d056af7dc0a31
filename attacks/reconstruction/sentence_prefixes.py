"""Prefixes of a client's sentences: how they grow word by word, and where sentences end."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

_MOST_PREFIXES = 2**12
"""Largest number of prefixes of all lengths: more take minutes to tell apart, and mostly cannot be."""


@dataclass(frozen=True)
class Prefixes:
    """Prefixes of sentences: ``words (P, L)`` padded with 0, shorter ones first, and the number of the longest proper
    prefix of each, ``parents (P,)``, -1 for single words.
    """

    words: Tensor
    parents: Tensor

    @property
    def lengths(self) -> Tensor:
        """``(P,)`` numbers of words."""
        return (self.words > 0).sum(1)

    def complete(self) -> Tensor:
        """``(P,)`` True for the longest prefixes, which none continues."""
        is_complete = torch.ones(len(self.words), dtype=torch.bool)
        is_complete[self.parents[self.parents >= 0]] = False
        return is_complete

    def started(self) -> Tensor:
        """``(P,)`` number of longest prefixes that start with each: how many sentences do, at least."""
        counts = self.complete().long()
        # From the longest: all that go through a prefix end in one that continues it, or in itself.
        for length in range(int(self.lengths.max()), 1, -1):
            is_of_length = self.lengths == length
            counts.index_add_(0, self.parents[is_of_length], counts[is_of_length])
        return counts


def grown_prefixes(extended: Callable[[Tensor], tuple[Tensor, Tensor] | None], longest: int) -> Prefixes | None:
    """Prefixes that grow by one word at a time; None if there are none, or too many.

    Args:
        extended: longer prefixes ``(P', L + 1)`` of some ``(P, L)``, and the number of the prefix that each continues;
            None for none.
        longest: largest number of words.
    """
    levels = [torch.zeros(1, 0, dtype=torch.int64)]
    parents = list[Tensor]()
    total = 0
    for length in range(longest):
        grown = extended(levels[-1])
        if grown is None:
            break
        longer, origin = grown
        if length == 0:
            parents.append(torch.full_like(origin, -1))
        else:
            parents.append(origin + total - len(levels[-1]))  # the numbers of the last level end at `total`
        levels.append(longer)
        total += len(longer)
        if total > _MOST_PREFIXES:
            return None
    if not parents:
        return None
    rows = [row for level in levels[1:] for row in level]
    return Prefixes(pad_sequence(rows, batch_first=True), torch.cat(parents))


def endings(prefixes: Prefixes, counts: Tensor) -> Tensor:
    """``(M, L)`` sentences, from how often each word follows each prefix, ``(P, W)``.

    A word that follows a prefix more often than their continuation is continued itself ends a sentence there.
    """
    ends = counts.clone()
    followed = counts.sum(1)
    # A prefix p w that is followed n times uses up n of the times that w follows p.
    longer = (prefixes.parents >= 0).nonzero().flatten()
    last_word = prefixes.words.gather(1, prefixes.lengths[:, None] - 1)[:, 0]
    ends[prefixes.parents[longer], last_word[longer]] -= followed[longer]
    prefix, word = (ends > 0).nonzero(as_tuple=True)
    records = torch.nn.functional.pad(prefixes.words[prefix], (0, 1))
    records[torch.arange(len(prefix)), prefixes.lengths[prefix]] = word
    return records.repeat_interleave(ends[prefix, word], 0)
