"""Prefixes of sentences that are known so far, and what is left of the words that follow none of them yet."""

import copy
from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

START, ROOT, GONE = -1, -2, -3
"""Parents of prefixes of one word; of prefixes whose words are unknown; and of those that turned out to be others."""
States = Callable[[Tensor, Tensor], Tensor]
"""States ``(P, W, C)`` after every pair of a prefix with state ``(P, C)`` and a word ``(W,)``."""


class PrefixForest:
    """Trees of prefixes, each of which is reached by sentences some number of times, and left some number of times.

    A word that follows a prefix is taken from the words that are left, and the prefix's state from the word's sum. A
    prefix that is reached more often than it is left ends a sentence, or will be continued.

    Args:
        states: states of longer prefixes.
        empty: ``(1, C)`` state before the first word. The first D numbers of a state are the last layer's input.
        words: ``(W,)`` numbers of the words; all other arguments and results name a word by its place among them.
        starts: ``(S,)`` words that may begin sentences or be inside.
        counts: ``(W,)`` times that each word follows another one.
        sums: ``(W, D)`` sum of the states before each word.

    Attributes:
        left: ``(W,)`` times that a word follows an unknown prefix.
        sums: ``(W, D)`` sums of the states of these.
        parents: prefix that each prefix continues, or `START`, `ROOT` or `GONE`.
        last: last word of each prefix.
        reached: times that a sentence reaches each prefix; without limit for `START` and `ROOT`.
        leaves: times that a sentence continues each prefix.
        carried: ``(P, C)`` states of the prefixes.
    """

    def __init__(
        self, states: States, empty: Tensor, words: Tensor, starts: Tensor, counts: Tensor, sums: Tensor
    ) -> None:
        self.states, self.words, self.starts = states, words, starts
        self.left, self.sums = counts.clone(), sums.clone()
        self.parents, self.last = [START] * len(starts), starts.tolist()
        self.reached, self.leaves = [0] * len(starts), [0] * len(starts)
        self.children = {(START, word): place for place, word in enumerate(self.last)}
        self.carried = states(empty, words[starts])[0]

    @property
    def width(self) -> int:
        """Length D of the last layer's input."""
        return self.sums.shape[1]

    @property
    def begun(self) -> int:
        """Sentences whose first word is known."""
        return sum(self.leaves[: len(self.starts)])

    def copy(self) -> "PrefixForest":
        """A copy that can be changed on its own."""
        made = copy.copy(self)
        made.left, made.sums = self.left.clone(), self.sums.clone()
        made.parents, made.last, made.reached = self.parents[:], self.last[:], self.reached[:]
        made.leaves, made.children = self.leaves[:], dict(self.children)
        return made

    def open(self, place: int) -> bool:
        """Whether a prefix is reached more often than it is left."""
        return self.parents[place] >= 0 and self.reached[place] > self.leaves[place]

    def attach(self, place: int, path: Sequence[int]) -> bool:
        """Continues a prefix by words, if that many are left."""
        path = list(path)
        while len(path) > 1:  # where the beginning of the path is known and not left yet, it is the same sentence
            known = self.children.get((place, path[0]))
            if known is None or not self.open(known):
                break
            place, path = known, path[1:]
        if not self._enough(place, path, 1):
            return False
        for word in path:
            place = self._continue(place, word)
        return True

    def add_root(self, state: Tensor, path: Sequence[int]) -> None:
        """Adds a prefix of unknown words with state ``(C,)`` that words continue."""
        self._append(ROOT, -1, state)
        place = len(self.parents) - 1
        for word in path:
            place = self._continue(place, word)

    def identify(self, root: int, place: int, path: Sequence[int]) -> bool:
        """Makes a prefix of unknown words the continuation of a known one, if enough words are left."""
        if root in self._line(place) or not self._enough(place, path, self.leaves[root]):
            return False
        for word in path:
            place = self._continue(place, word)
        self.leaves[place] += self.leaves[root]
        self.parents[root] = GONE
        for (parent, word), child in list(self.children.items()):
            if parent == root:
                self.parents[child] = place
                self.children.setdefault((place, word), child)
        self._reach(place)
        return True

    def roots(self) -> list[int]:
        """Prefixes whose words are unknown."""
        return [place for place, parent in enumerate(self.parents) if parent == ROOT]

    def prefix(self, place: int) -> list[int] | None:
        """Words of a prefix; None if they are unknown."""
        line = self._line(place)
        if self.parents[line[-1]] == ROOT:
            return None
        return [int(self.words[self.last[one]]) for one in reversed(line)]

    def sentences(self) -> list[list[int]]:
        """Prefixes that are reached more often than they are left, as often; also if they might be continued."""
        found = []
        for place in range(len(self.parents)):
            words = self.prefix(place) if self.open(place) else None
            if words is not None:
                found += [words] * (self.reached[place] - self.leaves[place])
        return found

    def _line(self, place: int) -> list[int]:
        """A prefix and those that it continues, the longest one first."""
        line = []
        while place >= 0:
            line.append(place)
            place = self.parents[place]
        return line

    def _append(self, parent: int, word: int, state: Tensor) -> None:
        self.children[parent, word] = len(self.parents)
        self.parents.append(parent)
        self.last.append(word)
        self.reached.append(0)
        self.leaves.append(0)
        self.carried = torch.cat([self.carried, state[None]])

    def _continue(self, place: int, word: int) -> int:
        """One more occurrence of a word after a prefix."""
        if (place, word) not in self.children:
            one = torch.tensor([int(self.words[word])])
            self._append(place, word, self.states(self.carried[place : place + 1], one)[0, 0])
        child = self.children[place, word]
        self.left[word] -= 1
        self.sums[word] -= self.carried[place, : self.width]
        self.leaves[place] += 1
        self.reached[child] += 1
        self._reach(place)
        return child

    def _reach(self, place: int) -> None:
        """Lets more sentences reach a prefix that is left more often than it is reached."""
        while self.parents[place] >= 0 and self.leaves[place] > self.reached[place]:
            self._continue(self.parents[place], self.last[place])

    def _enough(self, place: int, path: Sequence[int], times: int) -> bool:
        """Whether the words are left that let sentences reach a prefix and leave it along a path."""
        needed = Counter({word: path.count(word) * times for word in path})
        for one in self._line(place)[:-1]:
            times = max(self.leaves[one] + times - self.reached[one], 0)
            needed[self.last[one]] += times
            place = self.parents[place]
        return all(int(self.left[word]) >= count for word, count in needed.items())
