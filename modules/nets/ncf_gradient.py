"""The gradient of the collaborative-filtering loss written out, for stacked clients: autograd's numbers in less time.

At this size autograd spends as long on bookkeeping and copies as on numbers.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from modules.nets.ncf import layer_names


def ncf_loss_gradients(
    parameters: Mapping[str, Tensor], users: Tensor, items: Tensor, labels: Tensor, mask: Tensor
) -> tuple[Tensor, dict[str, Tensor], Tensor, Tensor]:
    """Mean binary cross-entropies of stacked clients and their gradients.

    Args:
        parameters: ``mlp.<i>.weight`` ``(C, out, in)`` and ``mlp.<i>.bias`` ``(C, out)``; the first takes [user, item].
        users: ``(C, d_u)``.
        items: ``(C, N, d_v)``.
        labels: ``(C, N)`` in [0, 1].
        mask: ``(C, N)`` True for real items.

    Returns:
        Losses ``(C,)``, gradients of `parameters`, of `users`, of `items`.
    """
    names = layer_names(parameters)
    layers = [(parameters[f"{name}.weight"], parameters[f"{name}.bias"]) for name in names]
    first, bias = layers[0]
    ours, theirs = torch.split_with_sizes(first, [users.shape[-1], items.shape[-1]], dim=2)
    offset = torch.baddbmm(bias[..., None], ours, users[..., None]).transpose(1, 2)
    activations = [items, torch.baddbmm(offset, items, theirs.transpose(1, 2)).relu_()]
    for weight, bias in layers[1:-1]:
        activations.append(torch.baddbmm(bias[:, None], activations[-1], weight.transpose(1, 2)).relu_())
    last, bias = layers[-1]
    logits = torch.baddbmm(bias[:, None], activations[-1], last.transpose(1, 2)).squeeze(2)
    share = mask.to(labels.dtype) / mask.sum(1, keepdim=True).clamp(min=1)
    losses = (functional.binary_cross_entropy_with_logits(logits, labels, reduction="none") * share).sum(1)

    error = (torch.sigmoid(logits) - labels).mul_(share)[..., None]
    gradients = {f"{names[-1]}.weight": error.transpose(1, 2) @ activations[-1], f"{names[-1]}.bias": error.sum(1)}
    signal = error * last
    for depth in range(len(layers) - 2, -1, -1):
        # The derivative of a ReLU, read from its output.
        signal = torch.ops.aten.threshold_backward(signal, activations[depth + 1], 0)
        gradients[f"{names[depth]}.weight"] = signal.transpose(1, 2) @ activations[depth]
        gradients[f"{names[depth]}.bias"] = signal.sum(1)
        signal = signal @ (theirs if depth == 0 else layers[depth][0])
    inner, outer = gradients[f"{names[0]}.weight"], gradients[f"{names[0]}.bias"][:, None]
    gradients[f"{names[0]}.weight"] = torch.cat([outer.transpose(1, 2) @ users[:, None], inner], dim=2)
    return losses, gradients, (outer @ ours).squeeze(1), signal
