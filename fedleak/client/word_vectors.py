"""Vectors of all words of a network, or of all words at all places, without holding them all at once."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

AT_ONCE = 2**22
"""Numbers that are computed together, 32 MiB in float64, so that memory does not grow with the candidates."""


class WordVectors(ABC):
    """``(K, d)`` known vectors, of which only parts are ever held in float64.

    What searches ask of a table of millions of vectors is how long each is within some space. That takes one pass and
    two numbers for each vector, so the vectors themselves need not be stored.

    Attributes:
        shape: K and d.
    """

    shape: tuple[int, int]

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def __getitem__(self, candidates: Tensor) -> Tensor:
        """``(k, d)`` vectors of some candidates, float32 or float64."""

    def parts(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Candidates ``(k,)`` and their vectors ``(k, d)`` in float64, in turn."""
        for candidates in torch.split(torch.arange(len(self)), max(1, AT_ONCE // self.shape[1])):
            yield candidates, self[candidates].double()

    def squares_along(self, directions: Sequence[Tensor]) -> list[Tensor]:
        """``(K,)`` squared length of the products of each vector with each matrix ``(r, d)``.

        If the matrix has orthonormal rows, that is the squared length of the part in its row space.
        """
        counts = [len(matrix) for matrix in directions]
        stacked = torch.cat(list(directions)).T
        squares = [torch.empty(len(self), dtype=torch.float64) for _ in directions]
        for candidates, vectors in self.parts():
            products = torch.split(vectors @ stacked.to(vectors), counts, dim=1)
            for of_matrix, part in zip(squares, products, strict=True):
                of_matrix[candidates] = part.double().square().sum(1)
        return squares

    @cached_property
    def squared_lengths(self) -> Tensor:
        """``(K,)`` squared length of each vector."""
        lengths = torch.empty(len(self), dtype=torch.float64)
        for candidates, vectors in self.parts():
            lengths[candidates] = vectors.square().sum(1)
        return lengths

    def times(self, matrix: Tensor) -> "StoredVectors":
        """The vectors ``matrix @ z`` of few numbers, for a matrix ``(r, d)``."""
        products = torch.empty(len(self), len(matrix), dtype=torch.float64)
        for candidates, vectors in self.parts():
            products[candidates] = vectors @ matrix.double().T
        return StoredVectors(products)


class StoredVectors(WordVectors):
    """Vectors that are stored, in the type they have.

    Args:
        vectors: ``(K, d)``.

    Example:
        >>> vectors = StoredVectors(torch.tensor([[3.0, 4.0], [0.0, 2.0]]))
        >>> vectors.squares_along([torch.tensor([[1.0, 0.0]])])  # along the first axis
        [tensor([9., 0.], dtype=torch.float64)]
    """

    def __init__(self, vectors: Tensor) -> None:
        self.vectors = vectors
        self.shape = (vectors.shape[0], vectors.shape[1])

    def __getitem__(self, candidates: Tensor) -> Tensor:
        return self.vectors[candidates]

    def parts_as_stored(self) -> Iterator[tuple[Tensor, Tensor]]:
        """`parts` without a change of type."""
        size = max(1, AT_ONCE // self.shape[1])
        for start in range(0, len(self), size):
            part = self.vectors[start : start + size]
            yield torch.arange(start, start + len(part)), part

    def squares_along(self, directions: Sequence[Tensor]) -> list[Tensor]:
        # In the type of the table, which halves the time of one in float32.
        counts = [len(matrix) for matrix in directions]
        stacked = torch.cat(list(directions)).T.to(self.vectors)
        squares = [torch.empty(len(self), dtype=torch.float64) for _ in directions]
        for candidates, vectors in self.parts_as_stored():
            products = torch.split(vectors @ stacked, counts, dim=1)
            for of_matrix, part in zip(squares, products, strict=True):
                of_matrix[candidates] = part.double().square().sum(1)
        return squares


@dataclass(frozen=True)
class NormedSums(WordVectors):
    """Layer norms of a vector of the word plus one of its place, for all words at all places.

    With centred vectors e_v and p_j, the candidate of word v at place j is ``g * (e_v + p_j) / s_vj + b``, where s_vj
    is the standard deviation of the sum's numbers. The products of all V x P candidates with r directions follow from
    those of V + P vectors, so a pass takes ``(V + P) d r + V P r`` operations and no candidate is formed.

    Attributes:
        words: ``(V, d)`` centred vectors of words, float64.
        places: ``(P, d)`` centred vectors of places, float64.
        gain: ``(d,)`` g.
        bias: ``(d,)`` b.
        epsilon: what the layer norm adds to the variance.

    Example:
        >>> axis = torch.tensor([[1.0, -1.0]]).double()
        >>> one, zero = torch.ones(2).double(), torch.zeros(2).double()
        >>> vectors = NormedSums(2 * axis, torch.cat([0 * axis, -3 * axis]), one, zero, epsilon=0.0)
        >>> vectors[torch.tensor([0, 1])]  # 2 and 2 - 3 along the axis
        tensor([[ 1., -1.],
                [-1.,  1.]], dtype=torch.float64)
    """

    words: Tensor
    places: Tensor
    gain: Tensor
    bias: Tensor
    epsilon: float

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        return len(self.words) * len(self.places), self.words.shape[1]

    @cached_property
    def deviations(self) -> Tensor:
        """``(V, P)`` standard deviation s of the numbers of each sum."""
        # |e + p|^2 = |e|^2 + |p|^2 + 2 e p
        squares = 2 * self.words @ self.places.T
        squares += self.words.square().sum(1, keepdim=True)
        squares += self.places.square().sum(1)
        return squares.div_(self.words.shape[1]).add_(self.epsilon).sqrt_()

    def __getitem__(self, candidates: Tensor) -> Tensor:
        word = candidates // len(self.places)
        place = candidates % len(self.places)
        sums = self.words[word] + self.places[place]
        return self.gain * sums / self.deviations[word, place][:, None] + self.bias

    def squares_along(self, directions: Sequence[Tensor]) -> list[Tensor]:
        squares = []
        for matrix in directions:
            weighted = (matrix.double() * self.gain).T  # (d, r)
            of_words = self.words @ weighted
            of_places = self.places @ weighted
            of_bias = matrix.double() @ self.bias
            # |(a + c) / s + h|^2 = (|a|^2 + |c|^2 + 2 a c) / s^2 + 2 (a + c) h / s + |h|^2
            of_sums = 2 * of_words @ of_places.T
            of_sums += of_words.square().sum(1, keepdim=True)
            of_sums += of_places.square().sum(1)
            of_sums /= self.deviations
            of_sums += 2 * ((of_words @ of_bias)[:, None] + of_places @ of_bias)
            of_sums /= self.deviations
            of_sums += of_bias.square().sum()
            squares.append(of_sums.clamp_(min=0).flatten())
        return squares

    @cached_property
    def squared_lengths(self) -> Tensor:
        return self.squares_along([torch.eye(self.shape[1], dtype=torch.float64)])[0]


class ComputedVectors(WordVectors):
    """Vectors that a function computes when they are asked for, where they are too many to be stored.

    Args:
        compute: gives the vectors ``(k, d)`` of some candidates ``(k,)``.
        count: number K of all.
        numbers: number d of each.
    """

    def __init__(self, compute: Callable[[Tensor], Tensor], count: int, numbers: int) -> None:
        self.compute = compute
        self.shape = (count, numbers)

    def __getitem__(self, candidates: Tensor) -> Tensor:
        return self.compute(candidates)


def word_vectors(vectors: WordVectors | Tensor) -> WordVectors:
    """The vectors of a table that is given as it is stored, or as `WordVectors`."""
    if isinstance(vectors, Tensor):
        return StoredVectors(vectors)
    return vectors
