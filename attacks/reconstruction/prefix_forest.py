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
        self.states = states
        self.words = words
        self.starts = starts
        self.left = counts.clone()
        self.sums = sums.clone()
        # The first prefixes are the single words that may begin a sentence.
        self.parents = [START] * len(starts)
        self.last = starts.tolist()
        self.reached = [0] * len(starts)
        self.leaves = [0] * len(starts)
        self.children = {(START, word): node for node, word in enumerate(self.last)}
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
        forest = copy.copy(self)
        forest.left = self.left.clone()
        forest.sums = self.sums.clone()
        forest.parents = self.parents[:]
        forest.last = self.last[:]
        forest.reached = self.reached[:]
        forest.leaves = self.leaves[:]
        forest.children = dict(self.children)
        return forest

    def open(self, node: int) -> bool:
        """Whether a prefix is reached more often than it is left."""
        return self.parents[node] >= 0 and self.reached[node] > self.leaves[node]

    def attach(self, node: int, path: Sequence[int]) -> bool:
        """Continues a prefix by words, if that many are left."""
        path = list(path)
        while len(path) > 1:  # where the beginning of the path is known and not left yet, it is the same sentence
            child = self.children.get((node, path[0]))
            if child is None or not self.open(child):
                break
            node = child
            path = path[1:]
        if not self._enough(node, path, 1):
            return False
        for word in path:
            node = self._continue(node, word)
        return True

    def add_root(self, state: Tensor, path: Sequence[int]) -> None:
        """Adds a prefix of unknown words with state ``(C,)`` that words continue."""
        self._append(ROOT, -1, state)
        node = len(self.parents) - 1
        for word in path:
            node = self._continue(node, word)

    def identify(self, root: int, node: int, path: Sequence[int]) -> bool:
        """Makes a prefix of unknown words the continuation of a known one, if enough words are left."""
        if root in self._ancestors(node) or not self._enough(node, path, self.leaves[root]):
            return False
        for word in path:
            node = self._continue(node, word)
        # The known prefix takes over what continues the root; its reached sentences grow with what leaves it.
        self.leaves[node] += self.leaves[root]
        self.parents[root] = GONE
        for (parent, word), child in list(self.children.items()):
            if parent == root:
                self.parents[child] = node
                self.children.setdefault((node, word), child)
        self._reach(node)
        return True

    def roots(self) -> list[int]:
        """Prefixes whose words are unknown."""
        return [node for node, parent in enumerate(self.parents) if parent == ROOT]

    def prefix(self, node: int) -> list[int] | None:
        """Words of a prefix; None if they are unknown."""
        ancestors = self._ancestors(node)
        if self.parents[ancestors[-1]] == ROOT:
            return None
        return [int(self.words[self.last[ancestor]]) for ancestor in reversed(ancestors)]

    def sentences(self) -> list[list[int]]:
        """Prefixes that are reached more often than they are left, as often; also if they might be continued."""
        sentences = []
        for node in range(len(self.parents)):
            words = self.prefix(node) if self.open(node) else None
            if words is not None:
                sentences += [words] * (self.reached[node] - self.leaves[node])
        return sentences

    def _ancestors(self, node: int) -> list[int]:
        """A prefix and those that it continues, the longest one first."""
        ancestors = []
        while node >= 0:
            ancestors.append(node)
            node = self.parents[node]
        return ancestors

    def _append(self, parent: int, word: int, state: Tensor) -> None:
        self.children[parent, word] = len(self.parents)
        self.parents.append(parent)
        self.last.append(word)
        self.reached.append(0)
        self.leaves.append(0)
        self.carried = torch.cat([self.carried, state[None]])

    def _continue(self, node: int, word: int) -> int:
        """One more occurrence of a word after a prefix."""
        if (node, word) not in self.children:
            number = torch.tensor([int(self.words[word])])
            self._append(node, word, self.states(self.carried[node : node + 1], number)[0, 0])
        child = self.children[node, word]
        # The occurrence is explained: it is taken from the word's count, and its state from the word's sum.
        self.left[word] -= 1
        self.sums[word] -= self.carried[node, : self.width]
        self.leaves[node] += 1
        self.reached[child] += 1
        self._reach(node)
        return child

    def _reach(self, node: int) -> None:
        """Lets more sentences reach a prefix that is left more often than it is reached."""
        while self.parents[node] >= 0 and self.leaves[node] > self.reached[node]:
            self._continue(self.parents[node], self.last[node])

    def _enough(self, node: int, path: Sequence[int], times: int) -> bool:
        """Whether the words are left that let sentences reach a prefix and leave it along a path."""
        needed = Counter({word: path.count(word) * times for word in path})
        # Up to the first word, each prefix must be reached as often as it is left; the first itself is free.
        for ancestor in self._ancestors(node)[:-1]:
            times = max(self.leaves[ancestor] + times - self.reached[ancestor], 0)
            needed[self.last[ancestor]] += times
        return all(int(self.left[word]) >= count for word, count in needed.items())
