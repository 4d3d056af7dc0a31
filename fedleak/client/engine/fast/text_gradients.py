"""Hand-written gradients of recurrent networks on texts, for single and stacked clients."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fedleak.client.engine.fast.gradients import Gradients, Parameters
from fedleak.client.engine.fast.lstm import lstm_gradients, lstm_trace
from fedleak.client.engine.fast.memory import BufferPool

_EMBEDDING, _OUTPUT = "embedding.weight", "output"
_PLACE, _TOKEN, _LABEL = "place", "tokens", "label"


class TextGradients(Gradients):
    """Gradients of `fedleak.client.text.TextAlgorithm`.

    Single clients use `torch.nn.LSTM`, whose CPU kernel is nearly three times as fast as products batched over clients;
    stacked clients, for a GPU, use `fedleak.client.engine.fast.lstm`.

    Args:
        states: hidden states of one client, as `TextAlgorithm.states`.
        rates: whether the task predicts ratings.
    """

    def __init__(self, states: Callable[[Parameters, Parameters], Tensor], *, rates: bool) -> None:
        self.states = states
        self.rates = rates

    @torch.enable_grad()
    def single(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> tuple[Tensor, Parameters] | None:
        """Loss and gradients of next-word prediction, without storing the logits of all words."""
        if self.rates:
            return None
        token = examples[_TOKEN].T
        states = self.states(parameters, examples)
        real = (token[1:] > 0) & mask
        loss = word_loss(states[real], parameters[f"{_OUTPUT}.weight"], parameters[f"{_OUTPUT}.bias"], token[1:][real])
        gradients = torch.autograd.grad(loss, list(parameters.values()))
        return loss.detach(), dict(zip(parameters, gradients, strict=True))

    def stacked(
        self, parameters: Parameters, examples: Parameters, mask: Tensor, buffers: BufferPool
    ) -> tuple[Tensor, Parameters]:
        """Losses and gradients with products batched over clients."""
        token = examples[_TOKEN].mT
        row = examples[_PLACE].mT
        table = parameters[_EMBEDDING]
        # Rows of the clients' tables as rows of one long table: client c starts at c times the rows of a table.
        starts = torch.arange(len(table), device=row.device)[:, None, None] * table.shape[1]
        flat_row = row + starts
        inputs = functional.embedding(flat_row, table.flatten(0, 1))
        # Nothing follows the last word of a text.
        if not self.rates:
            flat_row = flat_row[:, :-1]
            inputs = inputs[:, :-1]
        trace = lstm_trace(parameters, inputs)
        signal = torch.zeros_like(trace.outputs)
        losses = table.new_zeros(len(table))
        gradients = {}
        for part in ("weight", "bias"):
            gradients[f"{_OUTPUT}.{part}"] = torch.empty_like(parameters[f"{_OUTPUT}.{part}"])
        # The last layer is as wide as the vocabulary, so its logits are in memory for one client at a time.
        for client in range(len(table)):
            output_layer = {name: value[client] for name, value in parameters.items() if name.startswith(_OUTPUT)}
            rating = examples[_LABEL][client] if self.rates else None
            losses[client], signal[client], of_layer = self._output_gradients(
                output_layer, trace.outputs[client], token[client], mask[client], rating
            )
            for part, value in of_layer.items():
                gradients[part][client] = value
        of_lstm, of_inputs = lstm_gradients(parameters, trace, signal)
        of_table = torch.zeros_like(table)
        of_table.flatten(0, 1).index_add_(0, flat_row.flatten(), of_inputs.flatten(0, 2))
        return losses, {**gradients, **of_lstm, _EMBEDDING: of_table}

    def _output_gradients(
        self, layer: Parameters, states: Tensor, token: Tensor, mask: Tensor, rating: Tensor | None
    ) -> tuple[Tensor, Tensor, Parameters]:
        """Loss of one client, and its gradients by the states ``(T, B, H)`` and the last layer."""
        weight = layer[f"{_OUTPUT}.weight"]
        bias = layer[f"{_OUTPUT}.bias"]
        signal = torch.zeros_like(states)
        if rating is None:
            real = (token[1:] > 0) & mask
            loss, (signal[real], *of_layer) = word_loss_gradients(states[real], weight, bias, token[1:][real])
        else:
            at = last_places(token)
            last = states[at, torch.arange(len(at), device=at.device)]
            # Squared error of a rating from the state after the last word: its derivative is 2 gap / n.
            gap = (functional.linear(last, weight, bias)[:, 0] - rating) * mask
            share = 1 / mask.sum().clamp(min=1)
            loss = gap.square().sum() * share
            slope = (2 * share * gap)[:, None]
            signal[at, torch.arange(len(at), device=at.device)] = slope * weight
            of_layer = [slope.mT @ last, slope.sum(0)]
        return loss, signal, {f"{_OUTPUT}.weight": of_layer[0], f"{_OUTPUT}.bias": of_layer[1]}


def last_places(token: Tensor) -> Tensor:
    """``(B,)`` position of the last word of each text ``(T, B)``; 0 for an empty text."""
    return ((token > 0).sum(0) - 1).clamp(min=0)


_ROWS = 128
"""Number of positions processed at once, so that their logits fit in the processor's cache."""


def word_loss(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of a linear layer's logits, without storing all of them.

    Args:
        hidden: ``(N, H)``.
        weight: ``(V, H)`` of the layer.
        bias: ``(V,)``.
        targets: ``(N,)`` int64 in [0, V).

    Returns:
        Scalar that is differentiable once; zero for N = 0.
    """
    loss: Tensor = _WordLoss.apply(hidden, weight, bias, targets)
    return loss


class _WordLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        loss, gradients = word_loss_gradients(hidden, weight, bias, targets)
        ctx.save_for_backward(*gradients)
        return loss

    @staticmethod
    def backward(ctx: Any, *signal: Tensor) -> tuple[Tensor | None, ...]:
        of_hidden, of_weight, of_bias = ctx.saved_tensors
        return of_hidden * signal[0], of_weight * signal[0], of_bias * signal[0], None


def word_loss_gradients(
    hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """`word_loss` with its gradients by hidden states, weight and bias."""
    share = 1 / max(len(hidden), 1)
    of_hidden = torch.empty_like(hidden)
    of_weight = torch.zeros_like(weight)
    of_bias = torch.zeros_like(bias)
    loss = hidden.new_zeros(())
    for start in range(0, len(hidden), _ROWS):
        chunk = slice(start, start + _ROWS)
        slope = torch.softmax(torch.addmm(bias, hidden[chunk], weight.mT), dim=1)
        target = targets[chunk, None]
        # Clamping keeps the loss of a word with probability zero finite.
        loss -= slope.gather(1, target).clamp(min=torch.finfo(slope.dtype).tiny).log().sum()
        # The derivative of the mean cross-entropy by the logits: (p - onehot(target)) / N.
        slope.scatter_add_(1, target, -torch.ones_like(slope[:, :1])).mul_(share)
        torch.mm(slope, weight, out=of_hidden[chunk])
        of_weight.addmm_(slope.mT, hidden[chunk])
        of_bias += slope.sum(0)
    return loss * share, (of_hidden, of_weight, of_bias)
