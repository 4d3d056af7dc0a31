"""Trained parameters in few tensors, because an optimizer's overhead per tensor exceeds the work on a small one."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from modules.engine.fast.buffer_pool import BufferPool

_SMALL = 2**14
"""Largest number of entries per client of a parameter that shares its memory with others."""


class FlatParameters:
    """Trained parameters, of which the small ones share one tensor.

    Args:
        start: initial values, of one client or stacked clients.
        clients: number of clients.
        copy: returns the trained copy of a large parameter.
        share: whether small parameters share memory.

    Attributes:
        leaves: parameters by name, as leaves of autograd.
        owners: tensors that own their memory, for an optimizer.
    """

    def __init__(
        self, start: Mapping[str, Tensor], clients: int, copy: Callable[[str, Tensor], Tensor], *, share: bool = True
    ) -> None:
        small = _SMALL * clients if share else -1
        self._small = [n for n, value in start.items() if value.numel() <= small and value.is_contiguous()]
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
        """Gradients of the owners in their order, from gradients of the parameters."""
        made = [gradients[name] for name in self._large]
        if self._small:
            together = [gradients[name].flatten() for name in self._small]
            made.append(torch.cat(together, out=buffers.take("small", self.owners[-1].shape, self.owners[-1])))
        return made
