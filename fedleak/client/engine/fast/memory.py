"""Memory of local training: reused by every step, shared by small parameters, kept by the allocator."""

import ctypes
import functools
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

_SMALL = 2**14
"""Largest number of entries per client of a parameter that shares its memory with others."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameter numbers of ``mallopt(3)`` in glibc."""
_KEEP = 2**30
"""Bytes of freed memory that glibc keeps."""
_LARGEST_ON_HEAP = 2**25
"""Largest value that glibc accepts."""


class BufferPool:
    """Tensors by name, allocated once.

    Memory that is freed and allocated in every step is not in the processor's cache, and a step on small networks then
    takes 20 percent longer.
    """

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Tensor of a name, with undefined values, of the type and device of another."""
        tensor = self._tensors.get(name)
        if tensor is None or tensor.shape != torch.Size(shape) or tensor.dtype != like.dtype:
            tensor = self._tensors[name] = like.new_empty(shape)
        return tensor


class FlatParameters:
    """Trained parameters, of which the small ones share one tensor.

    An optimizer's overhead per tensor exceeds the work on a small one.

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
        # Those that are not contiguous keep a tensor of their own: flattening would change their layout.
        small = _SMALL * clients if share else -1
        self._small = []
        self._large = []
        for name, value in start.items():
            if value.numel() <= small and value.is_contiguous():
                self._small.append(name)
            else:
                self._large.append(name)
        parts = {name: copy(name, start[name]).requires_grad_() for name in self._large}
        self.owners = list(parts.values())
        if self._small:
            shared = torch.cat([start[name].flatten() for name in self._small])
            self.owners.append(shared)
            sizes = [start[name].numel() for name in self._small]
            pieces = torch.split(shared, sizes)
            for name, piece in zip(self._small, pieces, strict=True):
                parts[name] = piece.view(start[name].shape).detach().requires_grad_()
        self.leaves = {name: parts[name] for name in start}

    def of_owners(self, gradients: Mapping[str, Tensor], buffers: BufferPool) -> list[Tensor]:
        """Gradients of the owners in their order, from gradients of the parameters."""
        owner_gradients = [gradients[name] for name in self._large]
        if self._small:
            together = [gradients[name].flatten() for name in self._small]
            shared = self.owners[-1]
            owner_gradients.append(torch.cat(together, out=buffers.take("small", shared.shape, shared)))
        return owner_gradients


@functools.cache
def keep_freed_memory() -> bool:
    """Makes glibc keep up to 1 GiB of freed memory, because every page of a new block costs a page fault.

    Returns:
        Whether the settings were applied; False with another C library.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST_ON_HEAP) and mallopt(_TRIM_THRESHOLD, _KEEP))
