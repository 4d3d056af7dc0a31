"""Hand-written gradient of the collaborative filtering loss for stacked clients.

For networks of this size, half of autograd's time is overhead; this code takes little longer than its six large matrix
products.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from client.engine.fast.gradients import Gradients, Parameters
from client.engine.fast.memory import BufferPool
from client.nets.ncf import layer_names
from protocol.view import ITEM_EMBEDDING

_relu_gradient = torch.ops.aten.threshold_backward.grad_input

_USERS, _POSITION = "user_embedding", "position"


class InteractionGradients(Gradients):
    """Gradients of `client.fncf.FNCFAlgorithm` on full batches."""

    def stacked(
        self, parameters: Parameters, examples: Parameters, mask: Tensor, buffers: BufferPool
    ) -> tuple[Tensor, Parameters] | None:
        if _POSITION in examples:
            return None
        losses, gradients, by_users, by_items = ncf_loss_gradients(
            parameters, parameters[_USERS], parameters[ITEM_EMBEDDING], examples["label"], mask, buffers
        )
        return losses, {**gradients, _USERS: by_users, ITEM_EMBEDDING: by_items}


def ncf_loss_gradients(
    parameters: Mapping[str, Tensor], users: Tensor, items: Tensor, labels: Tensor, mask: Tensor, buffers: BufferPool
) -> tuple[Tensor, dict[str, Tensor], Tensor, Tensor]:
    """Mean binary cross-entropies of stacked clients and their gradients.

    Args:
        parameters: ``mlp.<i>.weight`` ``(C, out, in)`` and ``mlp.<i>.bias`` ``(C, out)``; the first takes [user, item].
        users: ``(C, d_u)``.
        items: ``(C, N, d_v)``.
        labels: ``(C, N)`` in [0, 1].
        mask: ``(C, N)`` True for real items.
        buffers: memory of intermediate results and gradients.

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
            # Derivative of the ReLU, computed from its output.
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
    # For an inner dimension of one, a matrix product takes ten times as long as a multiplication.
    return torch.mul(left, right, out=out) if left.shape[2] == 1 else torch.bmm(left, right, out=out)
