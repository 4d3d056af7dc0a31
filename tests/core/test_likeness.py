"""Which tensors of two updates are compared."""

import torch

from fedleak.core.likeness import flat_alike


def test_tensors_of_another_shape_and_statistics_are_not_compared() -> None:
    first = {"a": torch.ones(2, 3), "b": torch.ones(2, 3), "norm.running_mean": torch.ones(2, 3)}
    second = first | {"b": torch.ones(2, 4)}
    assert [list(part) for part in flat_alike(first, second)] == [["a"], ["a"]]
