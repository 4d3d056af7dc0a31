"""The machine's speed on matrix products, the reference of the jobs."""

import os
import time

import torch


def measured_peak(size: int = 2048, repeats: int = 4) -> float:
    """Highest number of operations per second in products of square float32 matrices on all cores."""
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
    """A product by the library of convolutions, which on some processors is faster than that of `torch.mm`."""
    if not torch._C._has_mkldnn:
        return torch.mm(left, right)
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(left, right, None, "none", [], "")
    return product
