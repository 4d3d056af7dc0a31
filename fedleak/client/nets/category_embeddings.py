"""Embeddings of the categories of a row: a table of vectors for each one-hot group of its inputs."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class CategoryEmbeddings(nn.Module):
    """Replaces each one-hot group of a row's inputs by a vector of its own table; other inputs stay, in front.

    A table is a linear layer without bias: its product with a one-hot group is the vector of the category.

    Args:
        inputs: number D of inputs.
        groups: first input and number of inputs of each category.
        width: numbers of a vector.

    Example:
        >>> made = CategoryEmbeddings(4, [(1, 3)], 2)
        >>> made.features, made(torch.eye(4)).shape
        (3, torch.Size([4, 3]))
    """

    def __init__(self, inputs: int, groups: Sequence[tuple[int, int]], width: int) -> None:
        super().__init__()
        self.groups = [(start, start + size) for start, size in groups]
        categorical = set[int]()
        for start, end in self.groups:
            categorical.update(range(start, end))
        self.rest = [index for index in range(inputs) if index not in categorical]
        self.tables = nn.ModuleList(nn.Linear(size, width, bias=False) for _, size in groups)
        self.features = len(self.rest) + width * len(groups)

    def forward(self, rows: Tensor) -> Tensor:
        """``(N, D)`` -> ``(N, features)``."""
        parts = []
        for table, (start, end) in zip(self.tables, self.groups, strict=True):
            parts.append(table(rows[:, start:end]))
        return torch.cat([rows[:, self.rest], *parts], dim=1)
