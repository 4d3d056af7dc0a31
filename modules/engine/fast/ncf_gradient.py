"""The gradient of the collaborative-filtering loss written out, for stacked clients: autograd's numbers in less time.

At this size autograd spends as long on bookkeeping and copies as on numbers. What is written here takes little more
time than its six large products.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from modules.engine.fast.buffer_pool import BufferPool
from modules.nets.ncf import layer_names

_relu_gradient = torch.ops.aten.threshold_backward.grad_input


def ncf_loss_gradients(
    parameters: Mapping[str, Tensor],
    users: Tensor,
    items: Tensor,
    labels: Tensor,
    mask: Tensor,
    buffers: BufferPool,
) -> tuple[Tensor, dict[str, Tensor], Tensor, Tensor]:
    """Mean binary cross-entropies of stacked clients and their gradients.

    Args:
        parameters: ``mlp.<i>.weight`` ``(C, out, in)`` and ``mlp.<i>.bias`` ``(C, out)``; the first takes [user, item].
        users: ``(C, d_u)``.
        items: ``(C, N, d_v)``.
        labels: ``(C, N)`` in [0, 1].
        mask: ``(C, N)`` True for real items.
        buffers: what to write to; the gradients lie in it too.

    Returns:
        Losses ``(C,)``, gradients of `parameters`, of `users`, of `items`.
    """
    names = layer_names(parameters)
    layers = [(parameters[f"{name}.weight"], parameters[f"{name}.bias"]) for name in names]
    first, bias = layers[0]
    ours, theirs = torch.split_with_sizes(first, [users.shape[-1], items.shape[-1]], dim=2)
    weights = [theirs, *(weight for weight, _ in layers[1:])]
    offsets = [torch.baddbmm(bias[..., None], ours, users[..., None]).transpose(1, 2)]
    offsets += [bias[:, None] for _, bias in layers[1:]]

    activations = [items]
    for depth, (weight, offset) in enumerate(zip(weights, offsets, strict=True)):
        values = _product(activations[-1], weight.transpose(1, 2), buffers, f"values{depth}").add_(offset)
        activations.append(values.relu_() if depth < len(weights) - 1 else values)
    logits = activations.pop().squeeze(2)
    share = mask.to(labels.dtype).div_(mask.sum(1, keepdim=True).clamp_(min=1))
    losses = functional.binary_cross_entropy_with_logits(logits, labels, reduction="none").mul_(share).sum(1)

    gradients = {}
    signal = logits.sigmoid_().sub_(labels).mul_(share)[..., None]
    for depth in range(len(weights) - 1, -1, -1):
        if depth < len(weights) - 1:
            # The derivative of a ReLU, read from its output.
            _relu_gradient(signal, activations[depth + 1], 0, grad_input=signal)
        by_weight = _product(signal.transpose(1, 2), activations[depth], buffers, f"by_weight{depth}")
        gradients[f"{names[depth]}.weight"] = by_weight
        gradients[f"{names[depth]}.bias"] = signal.sum(1)
        signal = _product(signal, weights[depth], buffers, f"signal{depth}")
    outer = gradients[f"{names[0]}.bias"]
    halves = [outer[..., None] * users[:, None], gradients[f"{names[0]}.weight"]]
    gradients[f"{names[0]}.weight"] = torch.cat(halves, dim=2, out=buffers.take("by_first", first.shape, first))
    return losses, gradients, torch.bmm(outer[:, None], ours).squeeze(1), signal


def _product(left: Tensor, right: Tensor, buffers: BufferPool, name: str) -> Tensor:
    out = buffers.take(name, (left.shape[0], left.shape[1], right.shape[2]), left)
    # What is thin is no product for a library: it takes ten times as long.
    return torch.mul(left, right, out=out) if left.shape[2] == 1 else torch.bmm(left, right, out=out)
