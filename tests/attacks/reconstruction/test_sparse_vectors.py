"""Sparse vectors without negative numbers in the span of a few of them."""

import torch

from fedleak.attacks.reconstruction.sparse_vectors import sparse_vector


def mixed(count: int, width: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sparse vectors ``(R, M)`` and an orthonormal basis ``(R, M)`` of their span."""
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.rand(count, width, generator=generator, dtype=torch.float64)
    vectors *= torch.rand(count, width, generator=generator) < 0.4
    return vectors, torch.linalg.svd(vectors, full_matrices=False)[2]


def test_finds_vectors_of_the_span_and_no_mixture() -> None:
    vectors, basis = mixed(6, 200, 0)
    generator = torch.Generator().manual_seed(0)
    seen = set()
    for _ in range(30):
        coordinates = sparse_vector(basis.T, basis.sum(1), generator=generator)
        if coordinates is None:
            continue
        cosines = torch.cosine_similarity((coordinates @ basis)[None], vectors)
        assert float(cosines.max()) > 1 - 1e-9
        seen.add(int(cosines.argmax()))
    assert len(seen) >= 3


def test_finds_nothing_in_a_span_without_sparse_vectors() -> None:
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(200, 6, generator=generator, dtype=torch.float64))[0]
    for _ in range(5):
        assert sparse_vector(basis, basis.sum(0), generator=generator) is None
