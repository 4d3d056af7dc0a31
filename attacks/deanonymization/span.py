"""Vectors of a hundred thousand numbers in as many coordinates as there are training messages, at the same distances.

A linear machine, a nearest neighbour or the first layer of a network sees of a vector only its products with the
training vectors. So they may be given its coordinates in the space that those span: all products between training
vectors, and between a training vector and any other, stay what they were.
"""

import torch
from torch import Tensor

_RANK = 1e-10
"""Of the largest eigenvalue, below which a direction is rounding."""


def in_span(training: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Coordinates in an orthonormal basis of the span of the training vectors.

    Args:
        training: ``(P, D)``.
        others: ``(V, D)``; what of them lies outside the span is lost.

    Returns:
        ``(P, R)`` and ``(V, R)`` of the same type, where R is the rank.
    """
    products = _products(training, training)
    values, vectors = torch.linalg.eigh(products)
    kept = values > _RANK * values[-1].clamp(min=torch.finfo(torch.float64).tiny)
    basis = vectors[:, kept] / values[kept].sqrt()
    return (products @ basis).to(training), (_products(others, training) @ basis).to(training)


def _products(left: Tensor, right: Tensor) -> Tensor:
    """In float32 and summed in float64 by blocks, so that no copy in float64 is made of the whole."""
    width = 2**15
    total = torch.zeros(len(left), len(right), dtype=torch.float64)
    for start in range(0, left.shape[1], width):
        block = slice(start, start + width)
        total += left[:, block].double() @ right[:, block].double().T
    return total
