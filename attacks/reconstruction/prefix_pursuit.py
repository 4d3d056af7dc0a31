"""Prefixes of a client's sentences whose states, few of a growing table, explain the changes of several layers."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedleak.attacks.linear_algebra import row_space
from fedleak.core.progress import report_progress
from fedleak.core.seeding import generator_for

_RIDGE = 1e-3
"""Least variance of a direction of the states, over the mean one, that whitening makes equal to the others."""
_POOL = 512
"""States after random prefixes from which the second moment of the states is estimated, or more."""
_POOLED = 40
"""Largest number of these prefixes: a client of few words has few states."""
_NOISE = 1.5
"""Singular values of what is unexplained count above so many times the noise's."""
_ONLY_NOISE = 1.1
"""What is unexplained, in units of the noise, up to which no further place is searched: a weak one would be lost."""
_EXPLAINED = 3.0
"""The same, up to which everything is explained: states are rounded too."""
_PRESENT = 3.0
"""Coefficient of a prefix, in standard errors of the noise, above which the update has its place."""
_VISIBLE = 1e-3
"""Part of a state's squared length outside the span of the chosen ones, below which that is rounding."""
_MARGIN = 2
"""Numbers of a state that must be left over: as many conditions decide that the choice is no accident."""
_ALMOST_ONE = 1 - 1e-7

States = Callable[[Tensor, Tensor], list[Tensor]]
"""Gives, of a prefix ``(L,)`` and words ``(W,)``, the states ``(W, d)`` of each layer at each word after it."""


@dataclass(frozen=True)
class PursuedPrefixes:
    """Prefixes of sentences, as far as a pursuit found them.

    Attributes:
        texts: ``(M, L)`` prefixes that none continues, padded with 0.
        left: norm of what they leave unexplained over the noise, of the layer in which it is largest.
        states: number of states that were computed.
    """

    texts: Tensor
    left: float
    states: int

    @property
    def explained(self) -> bool:
        """Whether they leave no more than noise."""
        return self.left <= _EXPLAINED


class _Layer:
    """Sums ``rows = coefficients @ states`` of one layer, and the states of all candidates, whitened.

    Attributes:
        rows: ``(R, d)`` sums in whitened coordinates.
        noise: expected norm of the noise in one of them.
        residual: ``(R, d)`` what the chosen states leave.
        span: ``(k, d)`` orthonormal basis of the chosen states.
    """

    def __init__(self, rows: Tensor, pool: Tensor, most: int) -> None:
        # Whitened by the states' second moment S, all directions of states have the same size: X S^-1/2 = C Z S^-1/2.
        moment = pool.double().T @ pool.double() / len(pool)
        variances, directions = torch.linalg.eigh(moment)
        ridge = _RIDGE * float(variances.mean())
        self._whitening = directions / (variances.clamp(min=0) + ridge).sqrt()
        self.rows = (rows @ self._whitening).float()
        # Noise of variance 1 in each number becomes |S^-1/2|_F in a row.
        self.noise = float(self._whitening.norm())
        self._whitening = self._whitening.float()
        self.residual = self.rows
        self.span = self.rows.new_zeros(0, rows.shape[1])
        self.vectors = self.rows.new_empty(most, rows.shape[1])
        self._squares = self.rows.new_empty(most)
        self._outside = self.rows.new_empty(most)
        self.count = 0
        # A direction that was chosen, and the number of candidates whose part along it is still to be taken out.
        self._newest = self.span
        self._before = 0

    def add(self, states: Tensor) -> None:
        """Adds candidates with states ``(W, d)``."""
        end = self.count + len(states)
        vectors = states @ self._whitening
        squares = vectors.square().sum(1)
        self.vectors[self.count : end] = vectors
        self._squares[self.count : end] = squares
        self._outside[self.count : end] = squares - (vectors @ self.span.T).square().sum(1)
        self.count = end

    def evidence(self) -> Tensor:
        """``(K,)`` logarithm of the likelihood that each candidate is in the sums, up to a factor; 0 for no evidence.

        A state outside the sums has a squared share s in the R directions of the residual with the law Beta(R / 2,
        (d - R) / 2), one of m unexplained states in the sums Beta(R / 2, (m - R) / 2): the ratio is a power of 1 - s.
        """
        values, basis = row_space(self.residual.double())
        basis = basis[values > _NOISE * self.noise].float()
        # One pass over the states for both: they are larger than any cache.
        along = self.vectors[: self.count] @ torch.cat([basis, self._newest]).T
        self._outside[: self._before] -= along[: self._before, len(basis) :].square().sum(1)
        self._newest = self._newest[:0]
        outside = self._outside[: self.count]
        shares = along[:, : len(basis)].square().sum(1) / outside.clamp(min=1e-30)
        shares[outside < _VISIBLE * self._squares[: self.count]] = 0
        return -torch.log1p(-shares.clamp(max=_ALMOST_ONE))

    def choose(self, number: int) -> None:
        """Takes the part along a candidate out of what is unexplained."""
        direction = self.vectors[number]
        for _ in range(2):  # twice, against the loss of orthogonality
            direction = direction - (direction @ self.span.T) @ self.span
        direction = direction / direction.norm().clamp(min=1e-30)
        self.span = torch.cat([self.span, direction[None]])
        self._newest = direction[None]
        self._before = self.count
        self.residual = self.residual - torch.outer(self.residual @ direction, direction)

    def left(self) -> float:
        """Norm of what is unexplained over that of the noise."""
        return float(self.residual.norm()) / max(self.noise * math.sqrt(len(self.rows)), 1e-30)

    def squared_strengths(self, chosen: Sequence[int]) -> Tensor:
        """``(k,)`` squared coefficients of the chosen candidates over their variance by what is unexplained."""
        inverse = torch.linalg.pinv(self.vectors[list(chosen)].double())  # (d, k)
        coefficients = (self.rows.double() @ inverse).square().sum(0)
        numbers = self.rows.numel()
        variance = (max(self.left(), 1.0) * self.noise) ** 2 * len(self.rows) / numbers
        squared: Tensor = coefficients / (variance * len(self.rows) * inverse.square().sum(0)).clamp(min=1e-300)
        return squared


def pursued_prefixes(
    states: States, sums: Sequence[Tensor], words: Tensor, *, most_states: int, longest: int
) -> PursuedPrefixes:
    """Chooses prefixes one after another until their states explain the sums of all layers.

    The change of a layer's A is ``C Z`` with the states Z of all places, which may be many more than its rows: then no
    state lies in the row space, but each has a larger part in it than others, in every layer. Each step chooses the
    prefix with the largest sum of evidence over the layers; the states after it and one more word are new candidates.
    When all is explained, prefixes that explain no more than noise, and that no other one continues, are left out.

    Args:
        states: gives the states of prefixes.
        sums: ``(R, d)`` change of each layer, in units of its noise.
        words: ``(W,)`` words that may occur.
        most_states: largest number of states.
        longest: largest number of words of a prefix.

    References:
        This project; [Davies12], algorithm 3, for the choice in one layer.
    """
    tree = _Tree(states, _layers(states, sums, words, max(most_states, len(words))), words)
    # As many states as numbers explain everything.
    most = min(layer.rows.shape[1] for layer in tree.layers) - _MARGIN
    while len(tree.chosen) < most and tree.left() > _ONLY_NOISE:
        evidence = torch.stack([layer.evidence() for layer in tree.layers]).sum(0)
        evidence[tree.chosen] = 0
        best = int(evidence.argmax())
        if float(evidence[best]) <= 0:
            break
        tree.choose(best)
        if len(tree.prefix(best)) < longest:
            if len(tree) + len(words) > most_states:
                break
            tree.grow(best)
        report_progress(len(tree) / most_states)
    return PursuedPrefixes(tree.texts(), tree.left(), len(tree))


class _Tree:
    """Candidates: each word after the empty prefix and after each chosen one.

    Attributes:
        layers: the layers with the states of all candidates.
        chosen: numbers of the chosen candidates, in the order of their choice.
    """

    def __init__(self, states: States, layers: Sequence[_Layer], words: Tensor) -> None:
        self._states = states
        self._words = words
        self.layers = layers
        self.chosen = list[int]()
        # Candidate k is the chosen prefix `parent[k]`, -1 for the empty one, and a word.
        self._parent = list[int]()
        self._last_word = list[int]()
        self.grow(-1)

    def __len__(self) -> int:
        """Number of candidates."""
        return len(self._parent)

    def prefix(self, number: int) -> Tensor:
        """``(L,)`` words of a candidate."""
        text = list[int]()
        while number >= 0:
            text.insert(0, self._last_word[number])
            number = self._parent[number]
        return torch.tensor(text, dtype=torch.int64)

    def grow(self, number: int) -> None:
        """Adds the prefixes that are longer than a candidate by one word."""
        for layer, of_layer in zip(self.layers, self._states(self.prefix(number), self._words), strict=True):
            layer.add(of_layer)
        self._parent.extend([number] * len(self._words))
        self._last_word.extend(self._words.tolist())

    def choose(self, number: int) -> None:
        """Takes a candidate into the explanation."""
        self.chosen.append(number)
        for layer in self.layers:
            layer.choose(number)

    def left(self) -> float:
        """Norm of what is unexplained over the noise, of the layer in which it is largest."""
        return max(layer.left() for layer in self.layers)

    def texts(self) -> Tensor:
        """``(M, L)`` chosen prefixes whose place the update has and that none of these continues, padded with 0."""
        if not self.chosen:
            return torch.zeros(0, 1, dtype=torch.int64)
        squared_strengths = torch.stack([layer.squared_strengths(self.chosen) for layer in self.layers]).mean(0)
        present = set[int]()
        for number, strength in zip(self.chosen, squared_strengths.sqrt().tolist(), strict=True):
            # With a prefix, those that it continues are present.
            while strength > _PRESENT and number >= 0:
                present.add(number)
                number = self._parent[number]
        ends = sorted(present - {self._parent[number] for number in present})
        if not ends:
            return torch.zeros(0, 1, dtype=torch.int64)
        return pad_sequence([self.prefix(number) for number in ends], batch_first=True)


def _layers(states: States, sums: Sequence[Tensor], words: Tensor, most_states: int) -> list[_Layer]:
    """Layers whose states are whitened by those after random prefixes of the words."""
    generator = generator_for(0, "prefixes")
    pools = [states(torch.zeros(0, dtype=torch.int64), words)]
    for number in range(min(_POOLED, -(-_POOL // len(words)))):
        length = 1 + number % 12
        draws = torch.randint(len(words), (length,), generator=generator)
        pools.append(states(words[draws], words))
    layers = []
    for rows, *of_layer in zip(sums, *pools, strict=True):
        layers.append(_Layer(rows, torch.cat(of_layer), most_states))
    return layers
