"""Sentences chained from the sums of the states before each word, where a span check has no free dimension.

For each word the change of the last layer gives the sum of the states before it (`word_sums`). A word that occurs once
as the next one gives the state of its predecessor exactly, and states are functions of the prefix. Sentences grow from
their first words: a prefix whose state is that of a single word is followed by it; subtracted from the sums, known
states leave other words with one unknown predecessor. Three searches go on where this ends. Two single words of which
one follows the other are recognised without the words before them (`PrefixStates.links`), and are continued as well.
Prefixes are extended by a few frequent words, until their state is that of a single word. A sum of several states is a
sparse non-negative combination of the states of known prefixes and their extensions.
"""

import functools
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from fedleak.attacks.reconstruction.prefix_forest import GONE, ROOT, PrefixForest
from fedleak.attacks.reconstruction.prefix_states import PrefixStates
from fedleak.attacks.reconstruction.word_sums import WordSums

_EQUAL = 12.0
"""States are equal up to so many times the error of a sum."""
_DEEPEST = 6
"""Largest number of words by which prefixes are extended at once."""
_COLUMNS = 3000
"""Largest number of states whose combinations are searched."""
_NUMBERS = 2**22
"""Numbers of the states that are held at once."""


@dataclass
class WordChains:
    """Search for the sentences of one client.

    Attributes:
        states: states of prefixes.
        forest: what is known.
        inside: ``(W,)`` whether each word occurs before another one.
        error: error of a sum of states.
        sentences: number of sentences that the client reports.
        budget: number of states that may still be computed.
    """

    states: PrefixStates
    forest: PrefixForest
    inside: Tensor
    error: float
    sentences: int
    budget: int

    def run(self) -> None:
        """Searches until all words have a predecessor, nothing more is found, or the budget is used."""
        while not self.complete:
            if not self._advance():
                return

    @property
    def complete(self) -> bool:
        """Whether all words follow a known prefix."""
        return not bool(self.forest.left.any()) and not self.forest.roots()

    def _advance(self) -> bool:
        """The first search that finds something, in the order of their costs."""
        for cost, search in sorted(self._searches(), key=operator.itemgetter(0)):
            if cost > self.budget:
                return False
            self.budget -= cost
            if search():
                return True
        return False

    def _searches(self) -> Iterator[tuple[int, Callable[[], bool]]]:
        """Searches with their costs: the number of states that each computes or combines."""
        forest = self.forest
        frequent = int((self.inside & (forest.left >= 2)).sum())
        remaining = int((self.inside & (forest.left >= 1)).sum())
        prefixes = [prefix for prefix, parent in enumerate(forest.parents) if parent != GONE]
        opened = [prefix for prefix in prefixes if forest.open(prefix)]
        yield 0, functools.partial(self._match, prefixes, 0)
        yield 0, self._link
        for depth in range(_DEEPEST + 1):
            # Once all sentences have begun, only prefixes that are reached more often than they are left go on.
            bases = [opened]
            if forest.begun < self.sentences or depth == 0:
                bases.append(prefixes)
            for base in bases:
                if not base:
                    continue
                if depth:
                    # Extensions by n words: as many as there are sequences of n frequent ones.
                    computed = len(base) * sum(frequent**length for length in range(1, depth + 1))
                    yield computed, functools.partial(self._match, base, depth)
                columns = len(base) * sum(remaining**length for length in range(depth + 1))
                if columns <= _COLUMNS:
                    yield columns, functools.partial(self._combine, base, depth)

    def _match(self, base: list[int], depth: int) -> bool:
        """Prefixes, extended by frequent words, whose state is that of a single word or of a root."""
        forest = self.forest
        single = (forest.left == 1).nonzero().flatten()
        roots = forest.roots()
        # The sum of a word that is left once is the state of its predecessor; a root's state is known.
        goals = torch.cat([forest.sums[single], forest.carried[roots, : forest.width]])
        if not len(goals):
            return False
        least = torch.full((len(goals),), _EQUAL * self.error, dtype=torch.float64)
        nearest: list[tuple[int, list[int]]] = [(-1, [])] * len(goals)
        for states, origin, path in self._extended(base, forest.left >= 2, depth):
            if not len(states):
                continue
            distances = torch.cdist(states[:, : forest.width], goals)
            if not depth:
                # A root is no continuation of itself or of another root.
                is_root = torch.tensor([forest.parents[prefix] == ROOT for prefix in base])
                distances[is_root, len(single) :] = torch.inf
            shortest, row = distances.min(0)
            for goal in (shortest < least).nonzero().flatten().tolist():
                least[goal] = shortest[goal]
                nearest[goal] = int(origin[row[goal]]), path[row[goal]].tolist()
        has_changed = False
        # The clearest first: each changes what is left, which later ones are checked against.
        for goal in least.argsort(stable=True).tolist():
            start, words = nearest[goal]
            if start < 0 or forest.parents[start] == GONE:
                continue
            if goal >= len(single):
                has_changed |= forest.identify(roots[goal - len(single)], start, words)
            elif int(forest.left[single[goal]]) == 1:
                has_changed |= forest.attach(start, [*words, int(single[goal])])
        return has_changed

    def _link(self) -> bool:
        """Single words of which one follows another: roots of which the words before are unknown."""
        forest = self.forest
        single = (forest.left == 1).nonzero().flatten()
        first = single[self.inside[single]]
        has_changed = False
        for before, after, state in self.states.links(forest.sums[first], forest.words[first], forest.sums[single]):
            pair = [int(first[before]), int(single[after])]
            if pair[0] != pair[1] and all(int(forest.left[word]) == 1 for word in pair):
                forest.add_root(state, pair)
                has_changed = True
        return has_changed

    def _combine(self, base: list[int], depth: int) -> bool:
        """Words whose sum is a combination of the states of prefixes and of their extensions by words that are left."""
        states, starts, paths = list[Tensor](), list[int](), list[list[int]]()
        for length in range(depth + 1):
            for part, origin, path in self._extended(base, self.forest.left >= 1, length):
                states.append(part[:, : self.forest.width])
                starts += origin.tolist()
                paths += path.tolist()
        columns = torch.cat(states).T.numpy()
        several = (self.forest.left >= 2).nonzero().flatten()
        has_changed = False
        # Words that are left least often first: sums of few states are decided best.
        for word in several[self.forest.left[several].argsort(stable=True)].tolist():
            times_left = int(self.forest.left[word])
            times = _combination(columns, self.forest.sums[word].numpy(), times_left, _EQUAL * self.error)
            if times_left < 2 or times is None:
                continue
            trial = self.forest.copy()
            chosen = np.repeat(np.arange(len(times)), times).tolist()
            if all(trial.attach(starts[column], [*paths[column], word]) for column in chosen):
                self.forest = trial
                has_changed = True
        return has_changed

    def _extended(self, base: list[int], words: Tensor, depth: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """States ``(N, C)``, prefixes ``(N,)`` and extensions ``(N, depth)`` by words that occur inside, in parts."""
        words = (words & self.inside).nonzero().flatten()
        origin = torch.tensor(base)
        yield from self._longer(self.forest.carried[origin], origin, origin.new_zeros(len(base), 0), words, depth)

    def _longer(
        self, states: Tensor, origin: Tensor, path: Tensor, words: Tensor, depth: int
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        if not depth:
            yield states, origin, path
            return
        count = len(words)
        if not count:
            return
        at_once = max(1, _NUMBERS // max(1, count * states.shape[1]))
        for some in torch.split(torch.arange(len(states)), at_once):
            longer = self.states.after(states[some], self.forest.words[words]).flatten(0, 1)
            last_word = words.repeat(len(some))[:, None]
            longer_path = torch.cat([path[some].repeat_interleave(count, 0), last_word], dim=1)
            longer_origin = origin[some].repeat_interleave(count)
            yield from self._longer(longer, longer_origin, longer_path, words, depth - 1)


def _combination(columns: np.ndarray, target: np.ndarray, total: int, tolerance: float) -> np.ndarray | None:
    """Whole numbers of columns ``(D, N)`` with a total that add up to a vector; None if there are none."""
    try:
        amounts = nnls(columns, target, maxiter=3 * columns.shape[1])[0]
    except RuntimeError:  # too many iterations
        return None
    times = np.rint(amounts).astype(int)
    is_explained = times.sum() == total and np.linalg.norm(columns @ times - target) <= tolerance
    return times if is_explained else None


def word_chains(
    states: PrefixStates, inside: Tensor, sums: WordSums, *, sentences: int, most_states: int
) -> WordChains:
    """The search for a client's sentences, before its first step.

    Args:
        states: states of prefixes.
        inside: ``(I,)`` words that occur before another one.
        sums: next words, and the states before them.
        sentences: number of sentences that the client reports.
        most_states: number of states to compute, after which the search ends.
    """
    words = torch.unique(torch.cat([inside, sums.counts.nonzero().flatten()]))
    is_inside = torch.isin(words, inside)
    forest = PrefixForest(
        states.after,
        empty=states.empty(),
        words=words,
        starts=is_inside.nonzero().flatten(),
        counts=sums.counts[words],
        sums=sums.sums[words],
    )
    return WordChains(
        states,
        forest=forest,
        inside=is_inside,
        error=sums.error,
        sentences=sentences,
        budget=most_states,
    )
