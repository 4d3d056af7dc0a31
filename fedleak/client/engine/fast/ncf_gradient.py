"""Hand-written gradient of the collaborative filtering loss for stacked clients, and the gradient's derivative.

For networks of this size, half of autograd's time is overhead; this code takes little longer than its six large matrix
products, and the derivative than its twelve.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedleak.client.engine.fast.gradients import Gradients, Parameters, SecondDerivatives
from fedleak.client.engine.fast.memory import BufferPool
from fedleak.client.nets.ncf import layer_names
from fedleak.core.view import ITEM_EMBEDDING

_relu_gradient = torch.ops.aten.threshold_backward.grad_input

_USERS, _POSITION = "user_embedding", "position"


class InteractionGradients(Gradients):
    """Gradients of `fedleak.client.fncf.FNCFAlgorithm` on full batches."""

    def stacked(
        self, parameters: Parameters, examples: Parameters, mask: Tensor, buffers: BufferPool
    ) -> tuple[Tensor, Parameters] | None:
        if _POSITION in examples:
            return None
        return ncf_gradients(parameters, examples["label"], mask, buffers)[:2]

    def differentiable(
        self, parameters: Parameters, examples: Parameters, mask: Tensor
    ) -> tuple[Parameters, SecondDerivatives] | None:
        if _POSITION in examples:
            return None
        _, gradients, values = ncf_gradients(parameters, examples["label"], mask, BufferPool())
        return gradients, values.second_derivatives


def ncf_gradients(
    parameters: Mapping[str, Tensor], labels: Tensor, mask: Tensor, buffers: BufferPool
) -> tuple[Tensor, Parameters, "NCFValues"]:
    """Mean binary cross-entropies of stacked clients and their gradients.

    Args:
        parameters: ``mlp.<i>.weight`` ``(C, out, in)`` and ``mlp.<i>.bias`` ``(C, out)``, of which the first takes
            [user, item]; ``user_embedding`` ``(C, d_u)``; ``item_embedding.weight`` ``(C, N, d_v)``.
        labels: ``(C, N)`` in [0, 1].
        mask: ``(C, N)`` True for real items.
        buffers: memory of intermediate results and gradients.

    Returns:
        Losses ``(C,)``, gradients by parameter, and the intermediate results.
    """
    network = _Network(parameters)
    share = mask.to(labels.dtype).div_(mask.sum(1, keepdim=True).clamp_(min=1))
    offsets, activations = network.offsets(), [network.items]
    for depth, (weight, offset) in enumerate(zip(network.weights, offsets, strict=True)):
        values = _product(activations[-1], weight.transpose(1, 2), buffers, f"values{depth}").add_(offset)
        activations.append(values.relu_() if depth < len(offsets) - 1 else values)
    logits = activations.pop().squeeze(2)
    losses = functional.binary_cross_entropy_with_logits(logits, labels, reduction="none").mul_(share).sum(1)

    probabilities = logits.sigmoid_()
    signal = torch.sub(probabilities, labels).mul_(share)[..., None]
    signals, by_weights, by_biases = list[Tensor](), list[Tensor](), list[Tensor]()
    for depth in range(len(offsets) - 1, -1, -1):
        if depth < len(offsets) - 1:
            # Derivative of the ReLU, computed from its output.
            _relu_gradient(signal, activations[depth + 1], 0, grad_input=signal)
        signals.insert(0, signal)
        by_weights.insert(0, _product(signal.transpose(1, 2), activations[depth], buffers, f"by_weight{depth}"))
        by_biases.insert(0, signal.sum(1))
        signal = _product(signal, network.weights[depth], buffers, f"signal{depth}")
    outer = by_biases[0]
    by_users = torch.bmm(outer[:, None], network.of_users).squeeze(1)
    of_users = outer[..., None] * network.users[:, None]
    gradients = network.named(by_weights, by_biases, of_users, by_users, signal, buffers)
    return losses, gradients, NCFValues(network, share, activations, probabilities, signals)


@dataclass(frozen=True)
class NCFValues:
    """Intermediate results of `ncf_gradients`.

    Attributes:
        network: the parameters.
        share: ``(C, N)`` weight of each item in its client's loss.
        activations: ``(C, N, in)`` inputs of each layer.
        probabilities: ``(C, N)`` outputs.
        signals: ``(C, N, out)`` gradients of the losses by what each layer gives to its activation function.
    """

    network: "_Network"
    share: Tensor
    activations: list[Tensor]
    probabilities: Tensor
    signals: list[Tensor]

    def second_derivatives(self, by: Parameters, *, given_only: bool) -> tuple[Parameters, Parameters | None]:
        """Derivatives of the gradients, as in `SecondDerivatives`, by Pearlmutter's R-operator.

        References:
            B. A. Pearlmutter, "Fast Exact Multiplication by the Hessian", Neural Computation 6 (1), 1994.
        """
        network, way, activations, signals = self.network, _Network(by), self.activations, self.signals
        offsets = way.offsets(network.users)
        offsets[0] = offsets[0] + torch.bmm(network.of_users, way.users[..., None]).transpose(1, 2)
        moved = [way.items]
        for depth, offset in enumerate(offsets):
            values = torch.baddbmm(offset, moved[-1], network.weights[depth].transpose(1, 2))
            values.baddbmm_(activations[depth], way.weights[depth].transpose(1, 2))
            if depth < len(offsets) - 1:
                values = _relu_gradient(values, activations[depth + 1], 0, grad_input=values)
            moved.append(values)
        slope = moved.pop().squeeze(2).mul_(self.share)
        by_labels = {"label": slope.neg()}
        if given_only:
            return by_labels, None
        signal = slope.mul_(self.probabilities).mul_(1 - self.probabilities)[..., None]
        by_weights, by_biases, pool = list[Tensor](), list[Tensor](), BufferPool()
        for depth in range(len(offsets) - 1, -1, -1):
            if depth < len(offsets) - 1:
                _relu_gradient(signal, activations[depth + 1], 0, grad_input=signal)
            by_weight = _product(signal.transpose(1, 2), activations[depth], pool, f"by{depth}")
            by_weights.insert(0, by_weight.baddbmm_(signals[depth].transpose(1, 2), moved[depth]))
            by_biases.insert(0, signal.sum(1))
            signal = _product(signal, network.weights[depth], pool, f"signal{depth}")
            if signals[depth].shape[2] == 1:
                signal.addcmul_(signals[depth], way.weights[depth])
            else:
                signal.baddbmm_(signals[depth], way.weights[depth])
        first = signals[0].sum(1)
        users = torch.addcmul(by_biases[0][..., None] * network.users[:, None], first[..., None], way.users[:, None])
        by_users = torch.bmm(by_biases[0][:, None], network.of_users).baddbmm_(first[:, None], way.of_users).squeeze(1)
        return by_labels, network.named(by_weights, by_biases, users, by_users, signal, pool)


class _Network:
    """Parameters of stacked clients, with the first layer's weights of users and of items apart."""

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        self.names = layer_names(parameters)
        self.users, self.items = parameters[_USERS], parameters[ITEM_EMBEDDING]
        first, *later = (parameters[f"{name}.weight"] for name in self.names)
        self.of_users, of_items = torch.split_with_sizes(first, [self.users.shape[-1], self.items.shape[-1]], dim=2)
        self.weights, self.biases = [of_items, *later], [parameters[f"{name}.bias"] for name in self.names]

    def offsets(self, users: Tensor | None = None) -> list[Tensor]:
        """What each layer adds to every item, ``(C, 1, out)``; `users` are the network's own if they are not given."""
        users = self.users if users is None else users
        first = torch.baddbmm(self.biases[0][..., None], self.of_users, users[..., None]).transpose(1, 2)
        return [first, *(bias[:, None] for bias in self.biases[1:])]

    def named(
        self,
        weights: list[Tensor],
        biases: list[Tensor],
        of_users: Tensor,
        users: Tensor,
        items: Tensor,
        buffers: BufferPool,
    ) -> Parameters:
        """Gradients by name; those of the layers' `weights` and `biases` are in the order of `names`."""
        width = of_users.shape[2] + weights[0].shape[2]
        out = buffers.take("by_first", (*of_users.shape[:2], width), items)
        together = [torch.cat([of_users, weights[0]], dim=2, out=out), *weights[1:]]
        layers = {f"{name}.weight": weight for name, weight in zip(self.names, together, strict=True)}
        layers |= {f"{name}.bias": bias for name, bias in zip(self.names, biases, strict=True)}
        return {**layers, _USERS: users, ITEM_EMBEDDING: items}


def _product(left: Tensor, right: Tensor, buffers: BufferPool, name: str) -> Tensor:
    out = buffers.take(name, (left.shape[0], left.shape[1], right.shape[2]), left)
    # For an inner dimension of one, a matrix product takes ten times as long as a multiplication.
    return torch.mul(left, right, out=out) if left.shape[2] == 1 else torch.bmm(left, right, out=out)
