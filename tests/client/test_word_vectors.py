"""Vectors that are not stored have the lengths of those that are, and no tensor is as large as all of them."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from fedleak.client import word_vectors as module
from fedleak.client.word_vectors import ComputedVectors, NormedSums, StoredVectors, WordVectors, word_vectors

WORDS, PLACES, NUMBERS = 50, 6, 16


def normed_sums(words: int = WORDS, places: int = PLACES, numbers: int = NUMBERS) -> tuple[NormedSums, Tensor]:
    """Layer norms of words at places, and the same vectors as torch computes them, stored."""
    generator = torch.Generator().manual_seed(0)
    of_words = torch.randn(words, numbers, generator=generator, dtype=torch.float64)
    of_places = torch.randn(places, numbers, generator=generator, dtype=torch.float64)
    norm = nn.LayerNorm(numbers, eps=1e-3).double()
    nn.init.normal_(norm.weight, generator=generator)
    nn.init.normal_(norm.bias, generator=generator)
    gain, bias = norm.weight.detach(), norm.bias.detach()
    centred_words, centred_places = (vectors - vectors.mean(1, keepdim=True) for vectors in (of_words, of_places))
    stored = norm((of_words[:, None] + of_places).flatten(0, 1)).detach()
    return NormedSums(centred_words, centred_places, gain, bias, epsilon=norm.eps), stored


def kinds() -> list[tuple[str, WordVectors, Tensor]]:
    normed, stored = normed_sums()
    computed = ComputedVectors(lambda candidates: stored[candidates], *stored.shape)
    single = stored.float()
    return [
        ("normed", normed, stored),
        ("computed", computed, stored),
        ("stored", StoredVectors(stored), stored),
        ("single", StoredVectors(single), single),
    ]


@pytest.mark.parametrize(("kind", "vectors", "stored"), kinds(), ids=lambda kind: kind if isinstance(kind, str) else "")
def test_lengths_and_products_are_those_of_the_stored_vectors(
    kind: str, vectors: WordVectors, stored: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 7 * NUMBERS)  # so that there are many parts
    exactness: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5} if kind == "single" else {"rtol": 1e-9, "atol": 1e-9}
    stored = stored.double()
    assert len(vectors) == WORDS * PLACES
    assert vectors.shape == (WORDS * PLACES, NUMBERS)
    candidates = torch.tensor([3, 299, 0])
    torch.testing.assert_close(vectors[candidates].double(), stored[candidates], **exactness)
    torch.testing.assert_close(vectors.squared_lengths, stored.square().sum(1), **exactness)
    matrices = [torch.randn(rows, NUMBERS, dtype=torch.float64) for rows in (0, 1, 5)]
    for squares, matrix in zip(vectors.squares_along(matrices), matrices, strict=True):
        torch.testing.assert_close(squares, (stored @ matrix.T).square().sum(1), **exactness)
    torch.testing.assert_close(vectors.times(matrices[2]).vectors, stored @ matrices[2].T, **exactness)
    assert word_vectors(vectors) is vectors


class LargestTensor(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the bytes of the largest tensor that an operation returns."""

    largest = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = function(*args, **(kwargs or {}))
        for output in outputs if isinstance(outputs, (tuple, list)) else [outputs]:
            if isinstance(output, Tensor):
                self.largest = max(self.largest, output.untyped_storage().nbytes())
        return outputs


def test_no_tensor_is_as_large_as_all_vectors() -> None:
    """16,000 words at 32 places of 384 numbers are 1.5 GB in float64; a pass needs 8 bytes for each candidate."""
    words, places, numbers = 16_000, 32, 384
    generator = torch.Generator().manual_seed(0)
    ones, zeros = torch.ones(numbers).double(), torch.zeros(numbers).double()
    of_words = torch.randn(words, numbers, generator=generator, dtype=torch.float64)
    of_places = torch.randn(places, numbers, generator=generator, dtype=torch.float64)
    vectors = NormedSums(of_words, of_places, ones, zeros, epsilon=0.0)
    with LargestTensor() as tensors:  # type: ignore[no-untyped-call]
        vectors.squares_along([of_places[:17], of_places[:1]])
        assert len(vectors[torch.arange(100)]) == 100
        assert len(vectors.squared_lengths) == words * places
    assert tensors.largest <= 8 * words * numbers  # that of the words
    assert tensors.largest < 8 * math.prod(vectors.shape) / 30
