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
    # Forward: each layer is W a + offset; the first one's offset holds the user's part, the same for all items.
    offsets = network.offsets()
    activations = [network.items]
    for depth, (weight, offset) in enumerate(zip(network.weights, offsets, strict=True)):
        values = _product(activations[-1], weight.transpose(1, 2), buffers, f"values{depth}").add_(offset)
        if depth < len(offsets) - 1:
            values = values.relu_()
        activations.append(values)
    logits = activations.pop().squeeze(2)
    losses = functional.binary_cross_entropy_with_logits(logits, labels, reduction="none").mul_(share).sum(1)

    # Backward: the derivative by a logit is (p - y) / n.
    probabilities = logits.sigmoid_()
    signal = torch.sub(probabilities, labels).mul_(share)[..., None]
    signals = list[Tensor]()
    by_weights = list[Tensor]()
    by_biases = list[Tensor]()
    for depth in range(len(offsets) - 1, -1, -1):
        if depth < len(offsets) - 1:
            # Derivative of the ReLU, computed from its output.
            _relu_gradient(signal, activations[depth + 1], 0, grad_input=signal)
        signals.insert(0, signal)
        by_weights.insert(0, _product(signal.transpose(1, 2), activations[depth], buffers, f"by_weight{depth}"))
        by_biases.insert(0, signal.sum(1))
        signal = _product(signal, network.weights[depth], buffers, f"signal{depth}")
    # The user's part is the same for all items, so its gradient is the sum over items: the first bias's.
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
            [Pearlmutter94].
        """
        direction = _Network(by)
        activation_changes, logit_changes = self._forward_changes(direction)
        slope = logit_changes.mul_(self.share)
        # Along `by` the loss changes by the logits' changes times (p - y) share: by a label, minus change times share.
        by_labels = {"label": slope.neg()}
        if given_only:
            return by_labels, None
        # Backward: the derivative of (p - y) share by the logit is p (1 - p) share.
        signal = slope.mul_(self.probabilities).mul_(1 - self.probabilities)[..., None]
        return by_labels, self._backward_changes(direction, activation_changes, signal)

    def _forward_changes(self, direction: "_Network") -> tuple[list[Tensor], Tensor]:
        """How the inputs of each layer ``(C, N, in)`` and the logits ``(C, N)`` change in a direction."""
        network = self.network
        offsets = direction.offsets(network.users)
        # The user's part of the first layer, W_u u, changes with W_u (above) and with u.
        offsets[0] = offsets[0] + torch.bmm(network.of_users, direction.users[..., None]).transpose(1, 2)
        changes = [direction.items]
        for depth, offset in enumerate(offsets):
            # W a changes with a and with W.
            values = torch.baddbmm(offset, changes[-1], network.weights[depth].transpose(1, 2))
            values.baddbmm_(self.activations[depth], direction.weights[depth].transpose(1, 2))
            if depth < len(offsets) - 1:
                # A ReLU passes changes where its output is positive.
                values = _relu_gradient(values, self.activations[depth + 1], 0, grad_input=values)
            changes.append(values)
        logit_changes = changes.pop().squeeze(2)
        return changes, logit_changes

    def _backward_changes(self, direction: "_Network", activation_changes: list[Tensor], signal: Tensor) -> Parameters:
        """How the gradients change in a direction, from the change ``(C, N, 1)`` of the gradient by the logits."""
        network = self.network
        pool = BufferPool()
        by_weights = list[Tensor]()
        by_biases = list[Tensor]()
        last = len(self.signals) - 1
        for depth in range(last, -1, -1):
            if depth < last:
                _relu_gradient(signal, self.activations[depth + 1], 0, grad_input=signal)
            # A weight's gradient is signal^T activation, of which both factors change: the product rule has two terms.
            by_weight = _product(signal.transpose(1, 2), self.activations[depth], pool, f"by{depth}")
            by_weight.baddbmm_(self.signals[depth].transpose(1, 2), activation_changes[depth])
            by_weights.insert(0, by_weight)
            by_biases.insert(0, signal.sum(1))
            # The signal before the layer is signal W, of which both factors change too.
            signal = _product(signal, network.weights[depth], pool, f"signal{depth}")
            if self.signals[depth].shape[2] == 1:
                signal.addcmul_(self.signals[depth], direction.weights[depth])
            else:
                signal.baddbmm_(self.signals[depth], direction.weights[depth])
        # The user's part of the first layer: the gradient by W_u is signal times user vector, that by the vector is
        # signal times W_u, both summed over items.
        first_signal = self.signals[0].sum(1)
        outer = by_biases[0]
        of_users = outer[..., None] * network.users[:, None]
        of_users = torch.addcmul(of_users, first_signal[..., None], direction.users[:, None])
        by_users = torch.bmm(outer[:, None], network.of_users)
        by_users = by_users.baddbmm_(first_signal[:, None], direction.of_users).squeeze(1)
        return network.named(by_weights, by_biases, of_users, by_users, signal, pool)


class _Network:
    """Parameters of stacked clients, with the first layer's weights of users and of items apart."""

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        self.names = layer_names(parameters)
        self.users = parameters[_USERS]
        self.items = parameters[ITEM_EMBEDDING]
        first, *later = (parameters[f"{name}.weight"] for name in self.names)
        self.of_users, of_items = torch.split_with_sizes(first, [self.users.shape[-1], self.items.shape[-1]], dim=2)
        self.weights = [of_items, *later]
        self.biases = [parameters[f"{name}.bias"] for name in self.names]

    def offsets(self, users: Tensor | None = None) -> list[Tensor]:
        """What each layer adds to every item, ``(C, 1, out)``; `users` are the network's own if they are not given."""
        if users is None:
            users = self.users
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
        # The first layer's weight is W = [W_u, W_v], put together again.
        together = [torch.cat([of_users, weights[0]], dim=2, out=out), *weights[1:]]
        layers = {f"{name}.weight": weight for name, weight in zip(self.names, together, strict=True)}
        layers |= {f"{name}.bias": bias for name, bias in zip(self.names, biases, strict=True)}
        return {**layers, _USERS: users, ITEM_EMBEDDING: items}


def _product(left: Tensor, right: Tensor, buffers: BufferPool, name: str) -> Tensor:
    out = buffers.take(name, (left.shape[0], left.shape[1], right.shape[2]), left)
    # For an inner dimension of one, a matrix product takes ten times as long as a multiplication.
    if left.shape[2] == 1:
        return torch.mul(left, right, out=out)
    return torch.bmm(left, right, out=out)
