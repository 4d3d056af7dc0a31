"""LSTM of stacked clients with a hand-written gradient.

Values and parameter names are those of `torch.nn.LSTM` with one layer. Products are batched over the clients, and only
the gates and states are kept for the gradient.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

LSTM = "lstm"
"""Name of the `torch.nn.LSTM` submodule."""
_INPUT, _HIDDEN = f"{LSTM}.weight_ih_l0", f"{LSTM}.weight_hh_l0"
_BIASES = (f"{LSTM}.bias_ih_l0", f"{LSTM}.bias_hh_l0")


@dataclass(frozen=True)
class Trace:
    """Values of a forward pass that the gradient needs.

    Attributes:
        inputs: ``(C, T, B, E)``.
        gates: ``(C, T, B, 4H)`` input, forget, cell and output gate, after their nonlinearities.
        cells: ``(C, T + 1, B, H)`` cell states, starting with zero.
        squashed: ``(C, T, B, H)`` hyperbolic tangent of the cell states.
        hidden: ``(C, T + 1, B, H)`` hidden states, starting with zero.
    """

    inputs: Tensor
    gates: Tensor
    cells: Tensor
    squashed: Tensor
    hidden: Tensor

    @property
    def outputs(self) -> Tensor:
        """``(C, T, B, H)`` hidden states after each input."""
        return self.hidden[:, 1:]


def lstm_trace(parameters: Mapping[str, Tensor], inputs: Tensor) -> Trace:
    """Forward pass of stacked clients' LSTMs.

    Args:
        parameters: ``lstm.*`` with a leading client dimension.
        inputs: ``(C, T, B, E)``.
    """
    clients, times, sequences, width = inputs.shape
    input_weights = parameters[_INPUT].mT
    hidden_weights = parameters[_HIDDEN].mT
    size = hidden_weights.shape[1]
    # The inputs' part of all gates at once: for all times, sequences and clients in one product.
    bias = (parameters[_BIASES[0]] + parameters[_BIASES[1]])[:, None]
    gates = torch.baddbmm(bias, inputs.reshape(clients, times * sequences, width), input_weights)
    gates = gates.view(clients, times, sequences, 4 * size)
    cells = inputs.new_zeros(clients, times + 1, sequences, size)
    hidden = torch.zeros_like(cells)
    squashed = inputs.new_empty(clients, times, sequences, size)
    for t in range(times):
        step_gates = gates[:, t]
        if t:
            step_gates += torch.bmm(hidden[:, t], hidden_weights)
        # Input and forget gate, then the cell's proposal, then the output gate.
        step_gates[..., : 2 * size].sigmoid_()
        step_gates[..., 2 * size : 3 * size].tanh_()
        step_gates[..., 3 * size :].sigmoid_()
        enter, keep, value, leave = step_gates.chunk(4, dim=2)
        # c_t = f c_{t-1} + i g and h_t = o tanh(c_t).
        torch.mul(keep, cells[:, t], out=cells[:, t + 1]).addcmul_(enter, value)
        torch.tanh(cells[:, t + 1], out=squashed[:, t])
        torch.mul(leave, squashed[:, t], out=hidden[:, t + 1])
    return Trace(inputs, gates, cells, squashed, hidden)


def lstm_gradients(parameters: Mapping[str, Tensor], trace: Trace, signal: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """Backpropagation through time.

    Args:
        parameters: as in `lstm_trace`.
        trace: result of `lstm_trace`.
        signal: ``(C, T, B, H)`` gradient of the loss by the outputs.

    Returns:
        Gradients of the parameters by name, and of the inputs ``(C, T, B, E)``.
    """
    clients, times, sequences, size = signal.shape
    slopes = torch.empty_like(trace.gates)
    carried = torch.zeros_like(signal[:, 0])
    cell = torch.zeros_like(signal[:, 0])
    for t in reversed(range(times)):
        enter, keep, value, leave = trace.gates[:, t].chunk(4, dim=2)
        squashed = trace.squashed[:, t]
        gate_slopes = slopes[:, t].chunk(4, dim=2)
        # The hidden state reaches the loss by the outputs and by the gates of the next time.
        reached = signal[:, t] + carried
        # By c_t: through h_t = o tanh(c_t), and what the next time left in `cell`.
        cell.addcmul_(reached * leave, 1 - squashed * squashed)
        # By what enters each nonlinearity: sigmoid' = s (1 - s), tanh' = 1 - t^2.
        torch.mul(cell * value, enter * (1 - enter), out=gate_slopes[0])
        torch.mul(cell * trace.cells[:, t], keep * (1 - keep), out=gate_slopes[1])
        torch.mul(cell * enter, 1 - value * value, out=gate_slopes[2])
        torch.mul(reached * squashed, leave * (1 - leave), out=gate_slopes[3])
        # By c_{t-1}, through c_t = f c_{t-1} + i g.
        cell *= keep
        if t:
            carried = torch.bmm(slopes[:, t], parameters[_HIDDEN])
    # Weights are the same at all times, so their gradients are sums over times and sequences.
    flat = slopes.view(clients, times * sequences, 4 * size)
    bias = flat.sum(1)
    gradients = {
        _INPUT: flat.mT @ trace.inputs.reshape(clients, times * sequences, -1),
        _HIDDEN: flat.mT @ trace.hidden[:, :-1].reshape(clients, times * sequences, size),
        _BIASES[0]: bias,
        _BIASES[1]: bias.clone(),
    }
    return gradients, (flat @ parameters[_INPUT]).view(clients, times, sequences, -1)
