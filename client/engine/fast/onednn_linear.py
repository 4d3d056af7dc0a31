"""Linear layers on a CPU with oneDNN."""

import torch
from torch import Tensor
from torch.nn import functional


def product(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``inputs @ weight.T + bias`` without autograd, for arbitrary strides.

    torch multiplies float32 matrices with MKL, whose fastest code runs only on one vendor's processors; oneDNN is up to
    three times as fast on others.

    Args:
        inputs: ``(N, in)``.
        weight: ``(out, in)``.
        bias: ``(out,)`` or None.
    """
    if inputs.device.type == "cpu" and inputs.dtype == torch.float32 and torch._C._has_mkldnn:
        made: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, _dense(weight), bias, "none", [], "")
        return made
    return functional.linear(inputs, weight, bias)


def _dense(weight: Tensor) -> Tensor:
    """Contiguous copy of a slice, because oneDNN is a thousand times slower on weights with gaps."""
    return weight if weight.is_contiguous() or weight.t().is_contiguous() else weight.contiguous()
