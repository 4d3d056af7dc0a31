"""Products of matrices by the library that is fastest for them on a CPU."""

import torch
from torch import Tensor
from torch.nn import functional


def product(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``inputs @ weight.T + bias``, as `torch.nn.functional.linear` has it, without a gradient of its own.

    torch multiplies float32 matrices by MKL, which keeps its fastest code for one vendor's processors; the library of
    its convolutions, oneDNN, does not, and is up to three times as fast on the others.

    Args:
        inputs: ``(N, in)``, strides as they come.
        weight: ``(out, in)``, strides as they come.
        bias: ``(out,)`` or None.
    """
    if inputs.device.type == "cpu" and inputs.dtype == torch.float32 and torch._C._has_mkldnn:
        made: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, _dense(weight), bias, "none", [], "")
        return made
    return functional.linear(inputs, weight, bias)


def _dense(weight: Tensor) -> Tensor:
    """A part of a larger matrix copied: oneDNN's code for weights with gaps is a thousand times slower."""
    return weight if weight.is_contiguous() or weight.t().is_contiguous() else weight.contiguous()
