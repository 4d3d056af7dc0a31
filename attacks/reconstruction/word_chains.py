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
        for cost, search in sorted(self._searches(), key=lambda one: one[0]):
            if cost > self.budget:
                return False
            self.budget -= cost
            if search():
                return True
        return False

    def _searches(self) -> Iterator[tuple[int, Callable[[], bool]]]:
        """Searches with their costs: the number of states that each computes or combines."""
        forest = self.forest
        frequent, usual = (int((self.inside & (forest.left >= least)).sum()) for least in (2, 1))
        known = [place for place, parent in enumerate(forest.parents) if parent != GONE]
        opened = [place for place in known if forest.open(place)]
        yield 0, functools.partial(self._match, known, 0)
        yield 0, self._link
        for depth in range(_DEEPEST + 1):
            # Once all sentences have begun, only prefixes that are reached more often than they are left go on.
            for base in (opened, known) if forest.begun < self.sentences or not depth else (opened,):
                if not base:
                    continue
                columns = len(base) * sum(usual**length for length in range(depth + 1))
                if depth:
                    computed = len(base) * sum(frequent**length for length in range(1, depth + 1))
                    yield computed, functools.partial(self._match, base, depth)
                if columns <= _COLUMNS:
                    yield columns, functools.partial(self._combine, base, depth)

    def _match(self, base: list[int], depth: int) -> bool:
        """Prefixes, extended by frequent words, whose state is that of a single word or of a root."""
        forest = self.forest
        single, roots = (forest.left == 1).nonzero().flatten(), forest.roots()
        goals = torch.cat([forest.sums[single], forest.carried[roots, : forest.width]])
        least = torch.full((len(goals),), _EQUAL * self.error, dtype=torch.float64)
        nearest: list[tuple[int, list[int]]] = [(-1, [])] * len(goals)
        if not len(goals):
            return False
        for states, origin, path in self._extended(base, forest.left >= 2, depth):
            if not len(states):
                continue
            distances = torch.cdist(states[:, : forest.width], goals)
            if not depth:
                own = torch.tensor([forest.parents[place] == ROOT for place in base])
                distances[own, len(single) :] = torch.inf
            shortest, place = distances.min(0)
            for goal in (shortest < least).nonzero().flatten().tolist():
                least[goal] = shortest[goal]
                nearest[goal] = int(origin[place[goal]]), path[place[goal]].tolist()
        found = False
        for goal in least.argsort(stable=True).tolist():
            start, words = nearest[goal]
            if start < 0 or forest.parents[start] == GONE:
                continue
            if goal >= len(single):
                found |= forest.identify(roots[goal - len(single)], start, words)
            elif int(forest.left[single[goal]]) == 1:
                found |= forest.attach(start, [*words, int(single[goal])])
        return found

    def _link(self) -> bool:
        """Single words of which one follows another: roots of which the words before are unknown."""
        forest = self.forest
        single = (forest.left == 1).nonzero().flatten()
        first = single[self.inside[single]]
        found = False
        for before, after, state in self.states.links(forest.sums[first], forest.words[first], forest.sums[single]):
            pair = [int(first[before]), int(single[after])]
            if pair[0] != pair[1] and all(int(forest.left[word]) == 1 for word in pair):
                forest.add_root(state, pair)
                found = True
        return found

    def _combine(self, base: list[int], depth: int) -> bool:
        """Words whose sum is a combination of the states of prefixes and of their extensions by words that are left."""
        parts = [part for length in range(depth + 1) for part in self._extended(base, self.forest.left >= 1, length)]
        columns = torch.cat([states[:, : self.forest.width] for states, _, _ in parts]).T.numpy()
        starts = [int(place) for _, origin, _ in parts for place in origin]
        paths = [words for _, _, path in parts for words in path.tolist()]
        several = (self.forest.left >= 2).nonzero().flatten()
        found = False
        for word in several[self.forest.left[several].argsort(stable=True)].tolist():
            left = int(self.forest.left[word])
            times = _combination(columns, self.forest.sums[word].numpy(), left, _EQUAL * self.error)
            if left < 2 or times is None:
                continue
            trial = self.forest.copy()
            chosen = [place for place in np.flatnonzero(times).tolist() for _ in range(times[place])]
            if all(trial.attach(starts[place], [*paths[place], word]) for place in chosen):
                self.forest, found = trial, True
        return found

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
        size, more = max(1, _NUMBERS // max(1, len(words) * states.shape[1])), len(words)
        for some in torch.split(torch.arange(len(states) if more else 0), size):
            grown = self.states.after(states[some], self.forest.words[words]).flatten(0, 1)
            paths = torch.cat([path[some].repeat_interleave(more, 0), words.repeat(len(some))[:, None]], dim=1)
            yield from self._longer(grown, origin[some].repeat_interleave(more), paths, words, depth - 1)


def _combination(columns: np.ndarray, wanted: np.ndarray, total: int, tolerance: float) -> np.ndarray | None:
    """Whole numbers of columns ``(D, N)`` with a total that add up to a vector; None if there are none."""
    try:
        amounts = nnls(columns, wanted, maxiter=3 * columns.shape[1])[0]
    except RuntimeError:  # too many iterations
        return None
    times = np.rint(amounts).astype(int)
    fits = times.sum() == total and np.linalg.norm(columns @ times - wanted) <= tolerance
    return times if fits else None


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
    occurs = torch.isin(words, inside)
    begins = occurs.nonzero().flatten()
    forest = PrefixForest(states.after, states.empty(), words, begins, sums.counts[words], sums.sums[words])
    return WordChains(states, forest, occurs, sums.error, sentences, most_states)
