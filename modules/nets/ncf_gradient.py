"""The gradient of the collaborative-filtering loss written out, for one client on a CPU.

Autograd spends as long on bookkeeping as on numbers at this size, and torch's plain matrix product does not use the
widest vector unit of every CPU; oneDNN's linear layer does, with the ReLU folded in.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

_HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def ncf_loss_gradient(
    layers: list[tuple[Tensor, Tensor]], user: Tensor, items: Tensor, labels: Tensor
) -> tuple[Tensor, list[tuple[Tensor, Tensor]], Tensor, Tensor]:
    """Mean binary cross-entropy of one client and its gradient.

    Args:
        layers: weight ``(out, in)`` and bias ``(out,)`` of each layer; the first takes [user, item].
        user: ``(d_u,)``.
        items: ``(N, d_v)``.
        labels: ``(N,)`` in [0, 1].

    Returns:
        Loss, gradients of the layers in order, of `user`, of `items`.
    """
    first, bias = layers[0]
    # oneDNN is a thousand times slower on a weight with gaps between its rows.
    ours, theirs = first[:, : len(user)], first[:, len(user) :].contiguous()
    hidden = [items]
    hidden.append(_linear(items, theirs, torch.addmv(bias, ours, user), relu=True))
    for weight, offset in layers[1:-1]:
        hidden.append(_linear(hidden[-1], weight, offset, relu=True))
    weight, offset = layers[-1]
    logits = torch.addmv(offset.expand(len(items)), hidden[-1], weight[0])
    loss = functional.binary_cross_entropy_with_logits(logits, labels)
    error = (torch.sigmoid(logits) - labels).div_(len(labels))
    gradients = [((error @ hidden[-1])[None], error.sum()[None])]
    signal = torch.outer(error, weight[0])
    for layer in range(len(layers) - 2, -1, -1):
        signal = torch.ops.aten.threshold_backward(signal, hidden[layer + 1], 0)
        inner = signal.t() @ hidden[layer]
        gradients.append((inner, signal.sum(0)))
        weight = theirs if layer == 0 else layers[layer][0]
        signal = _linear(signal, weight.t(), None, relu=False)
    inner, outer = gradients[-1]
    gradients[-1] = torch.cat([torch.outer(outer, user), inner], dim=1), outer
    return loss, gradients[::-1], ours.t() @ outer, signal


def _linear(inputs: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool) -> Tensor:
    if _HAS_ONEDNN and inputs.dtype == torch.float32:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "relu" if relu else "none", [], "")
        return out
    out = functional.linear(inputs, weight, bias)
    return out.relu_() if relu else out


def layers_of(parameters: Mapping[str, Tensor]) -> tuple[list[str], list[tuple[Tensor, Tensor]]]:
    """Names ``mlp.<i>`` in order, and each one's weight and bias."""
    names = sorted({n.rsplit(".", 1)[0] for n in parameters if n.startswith("mlp.")}, key=lambda n: int(n[4:]))
    return names, [(parameters[f"{n}.weight"], parameters[f"{n}.bias"]) for n in names]
