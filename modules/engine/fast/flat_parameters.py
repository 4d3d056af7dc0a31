"""Trained parameters in few tensors: an optimizer spends longer on each tensor than on what is in a small one."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from modules.engine.fast.buffer_pool import BufferPool

_SMALL = 2**14
"""Most numbers of a client in a parameter that shares its memory with others."""


class FlatParameters:
    """Parameters to train; the small ones lie behind one another in one tensor.

    Args:
        start: their values, of one client or of stacked ones.
        clients: how many clients.
        copy: makes the copy of a large one that is trained.

    Attributes:
        leaves: the parameters by name, which autograd takes for leaves.
        owners: the tensors that hold their memory, for an optimizer.
    """

    def __init__(self, start: Mapping[str, Tensor], clients: int, copy: Callable[[str, Tensor], Tensor]) -> None:
        self._small = [n for n, value in start.items() if value.numel() <= _SMALL * clients and value.is_contiguous()]
        self._large = [name for name in start if name not in self._small]
        parts = {name: copy(name, start[name]).requires_grad_() for name in self._large}
        self.owners = list(parts.values())
        if self._small:
            shared = torch.cat([start[name].flatten() for name in self._small])
            self.owners.append(shared)
            pieces = torch.split(shared, [start[name].numel() for name in self._small])
            for name, piece in zip(self._small, pieces, strict=True):
                parts[name] = piece.view(start[name].shape).detach().requires_grad_()
        self.leaves = {name: parts[name] for name in start}

    def of_owners(self, gradients: Mapping[str, Tensor], buffers: BufferPool) -> list[Tensor]:
        """From gradients of the parameters to those of the owners, in their order."""
        made = [gradients[name] for name in self._large]
        if self._small:
            together = [gradients[name].flatten() for name in self._small]
            made.append(torch.cat(together, out=buffers.take("small", self.owners[-1].shape, self.owners[-1])))
        return made
