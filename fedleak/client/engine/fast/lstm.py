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
    into, back = parameters[_INPUT].mT, parameters[_HIDDEN].mT
    size = back.shape[1]
    bias = (parameters[_BIASES[0]] + parameters[_BIASES[1]])[:, None]
    gates = torch.baddbmm(bias, inputs.reshape(clients, times * sequences, width), into)
    gates = gates.view(clients, times, sequences, 4 * size)
    cells = inputs.new_zeros(clients, times + 1, sequences, size)
    hidden, squashed = torch.zeros_like(cells), inputs.new_empty(clients, times, sequences, size)
    for t in range(times):
        step = gates[:, t]
        if t:
            step += torch.bmm(hidden[:, t], back)
        step[..., : 2 * size].sigmoid_()
        step[..., 2 * size : 3 * size].tanh_()
        step[..., 3 * size :].sigmoid_()
        enter, keep, value, leave = step.chunk(4, dim=2)
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
    carried, cell = torch.zeros_like(signal[:, 0]), torch.zeros_like(signal[:, 0])
    for t in reversed(range(times)):
        enter, keep, value, leave = trace.gates[:, t].chunk(4, dim=2)
        squashed, own = trace.squashed[:, t], slopes[:, t].chunk(4, dim=2)
        reached = signal[:, t] + carried
        cell.addcmul_(reached * leave, 1 - squashed * squashed)
        torch.mul(cell * value, enter * (1 - enter), out=own[0])
        torch.mul(cell * trace.cells[:, t], keep * (1 - keep), out=own[1])
        torch.mul(cell * enter, 1 - value * value, out=own[2])
        torch.mul(reached * squashed, leave * (1 - leave), out=own[3])
        cell *= keep
        if t:
            carried = torch.bmm(slopes[:, t], parameters[_HIDDEN])
    flat = slopes.view(clients, times * sequences, 4 * size)
    bias = flat.sum(1)
    gradients = {
        _INPUT: flat.mT @ trace.inputs.reshape(clients, times * sequences, -1),
        _HIDDEN: flat.mT @ trace.hidden[:, :-1].reshape(clients, times * sequences, size),
        _BIASES[0]: bias,
        _BIASES[1]: bias.clone(),
    }
    return gradients, (flat @ parameters[_INPUT]).view(clients, times, sequences, -1)
