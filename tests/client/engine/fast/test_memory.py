"""Small parameters lie in one tensor, large ones in their own, and both are what is trained."""

import torch
from torch import Tensor

from fedleak.client.engine.fast.memory import BufferPool, FlatParameters


def parameters() -> dict[str, Tensor]:
    return {"large": torch.randn(2, 200, 100), "weight": torch.randn(2, 3, 4), "bias": torch.randn(2, 3)}


def copy(_: str, value: Tensor) -> Tensor:
    return value.clone()


def test_small_ones_share_a_tensor() -> None:
    start = parameters()
    trained = FlatParameters(start, 2, copy)
    assert list(trained.leaves) == list(start)
    assert [owner.numel() for owner in trained.owners] == [2 * 200 * 100, 2 * 3 * 4 + 2 * 3]
    for name, leaf in trained.leaves.items():
        assert leaf.requires_grad
        torch.testing.assert_close(leaf.detach(), start[name])


def test_what_is_done_to_the_owners_is_done_to_the_parameters() -> None:
    start = parameters()
    trained, buffers = FlatParameters(start, 2, copy), BufferPool()
    for step in (1, 2):
        gradients = {name: torch.full_like(value, float(step)) * (1 + len(name)) for name, value in start.items()}
        for owner, gradient in zip(trained.owners, trained.of_owners(gradients, buffers), strict=True):
            owner.detach().sub_(gradient)
    for name, leaf in trained.leaves.items():
        torch.testing.assert_close(leaf.detach(), start[name] - 3 * (1 + len(name)))


def test_what_lies_in_strides_of_its_own_keeps_them() -> None:
    kernel = torch.randn(8, 3, 2, 2).contiguous(memory_format=torch.channels_last)
    trained = FlatParameters({"kernel": kernel, "bias": torch.zeros(8)}, 1, copy)
    assert trained.leaves["kernel"].stride() == kernel.stride()


def test_scratch_is_taken_once_for_a_shape() -> None:
    buffers, like = BufferPool(), torch.zeros(1)
    first = buffers.take("a", (2, 3), like)
    assert buffers.take("a", (2, 3), like) is first
    assert buffers.take("b", (2, 3), like) is not first
    assert buffers.take("a", (3, 3), like).shape == (3, 3)
    assert buffers.take("a", (3, 3), like.double()).dtype == torch.float64
