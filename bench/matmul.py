"""What the machine reaches on matrix products, to measure jobs against."""

import os
import time

import torch


def measured_peak(size: int = 2048, repeats: int = 4) -> float:
    """Most operations a second in products of square float32 matrices on all cores, the best of several."""
    threads = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    left, right = torch.randn(size, size), torch.randn(size, size)
    seconds = []
    for _ in range(repeats):
        for product in (torch.mm, _one_dnn):
            start = time.perf_counter()
            product(left, right)
            seconds.append(time.perf_counter() - start)
    torch.set_num_threads(threads)
    return 2 * size**3 / min(seconds)


def _one_dnn(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The library that convolutions use; on some processors it is faster than the one of `torch.mm`."""
    if not torch._C._has_mkldnn:
        return torch.mm(left, right)
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(left, right, None, "none", [], "")
    return product
