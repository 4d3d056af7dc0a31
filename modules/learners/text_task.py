"""The loss of a recurrent network over texts: the next word, or a rating (deanonymization, section 5)."""

import threading

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from datamodules.devices.word_rows import WORDS
from modules.engine.fast.buffer_pool import BufferPool
from modules.engine.fast.lstm import LSTM, lstm_gradients, lstm_trace
from modules.engine.fast.word_output import word_loss, word_loss_gradients
from modules.engine.tasks import Parameters
from modules.learners.text_options import TextOptions

EMBEDDING = WORDS
"""Table of the words; a client trains the rows of the words that it has."""
OUTPUT = "output"
"""Name of the last layer."""
PLACE, TOKEN, LABEL = "place", "tokens", "label"
"""Fields of an example: ``(L,)`` each word's row in the client's part of the table, ``(L,)`` its number, padded with 0;
and a rating."""


class TextTask:
    """Mean cross-entropy of the words after the first, or mean squared error of the ratings.

    One client runs `torch.nn.LSTM`, whose CPU kernel trains a sequence nearly three times as fast as batched products
    over clients do; so on a CPU clients are trained one after another, side by side in threads. Stacked clients, for a
    GPU, run `modules.engine.fast.lstm`.

    Args:
        network: sizes.
    """

    batched_by_hand = False
    random = False

    def __init__(self, network: TextOptions) -> None:
        self.network = network
        self._local = threading.local()

    @property
    def _lstm(self) -> nn.LSTM:
        """The calling thread's: `functional_call` puts the parameters into the module while it runs."""
        if not hasattr(self._local, "lstm"):
            # Empty: drawing weights, which are never used, would take from the global generator.
            empty = nn.LSTM(self.network.embedding, self.network.hidden, device="meta")
            self._local.lstm = empty.to_empty(device="cpu")
        lstm: nn.LSTM = self._local.lstm
        return lstm

    def client_loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        """See `modules.engine.tasks.Task`."""
        token, place = examples[TOKEN].T, examples[PLACE].T
        inputs = functional.embedding(place, parameters[EMBEDDING])
        own = {name.removeprefix(f"{LSTM}."): value for name, value in parameters.items() if name.startswith(LSTM)}
        states, _ = functional_call(self._lstm, own, (inputs if self._rates else inputs[:-1],))
        weight, bias = parameters[f"{OUTPUT}.weight"], parameters[f"{OUTPUT}.bias"]
        if not self._rates:
            real = (token[1:] > 0) & mask
            return word_loss(states[real], weight, bias, token[1:][real])
        told = functional.linear(last_states(states, token), weight, bias)[:, 0]
        return ((told - examples[LABEL]).square() * mask).sum() / mask.sum().clamp(min=1)

    def client_losses(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        """See `modules.engine.tasks.Task`."""
        return torch.stack(
            [
                self.client_loss({n: v[c] for n, v in parameters.items()}, {n: v[c] for n, v in examples.items()}, own)
                for c, own in enumerate(mask)
            ]
        )

    def client_gradients(
        self, parameters: Parameters, examples: Parameters, mask: Tensor, buffers: BufferPool
    ) -> tuple[Tensor, Parameters]:
        """See `modules.engine.tasks.Task`: every product over time is batched over clients."""
        token, place = examples[TOKEN].mT, examples[PLACE].mT
        table = parameters[EMBEDDING]
        flat = place + torch.arange(len(table), device=place.device)[:, None, None] * table.shape[1]
        inputs = functional.embedding(flat, table.flatten(0, 1))
        if not self._rates:
            flat, inputs = flat[:, :-1], inputs[:, :-1]
        trace = lstm_trace(parameters, inputs)
        signal, losses = torch.zeros_like(trace.outputs), table.new_zeros(len(table))
        gradients = {
            f"{OUTPUT}.{part}": torch.empty_like(parameters[f"{OUTPUT}.{part}"]) for part in ("weight", "bias")
        }
        for client in range(len(table)):
            own = {name: value[client] for name, value in parameters.items() if name.startswith(OUTPUT)}
            rating = examples[LABEL][client] if self._rates else None
            losses[client], signal[client], of_layer = self._output_gradients(
                own, trace.outputs[client], token[client], mask[client], rating
            )
            for part, value in of_layer.items():
                gradients[part][client] = value
        of_lstm, of_inputs = lstm_gradients(parameters, trace, signal)
        of_table = torch.zeros_like(table)
        of_table.flatten(0, 1).index_add_(0, flat.flatten(), of_inputs.flatten(0, 2))
        return losses, {**gradients, **of_lstm, EMBEDDING: of_table}

    def _output_gradients(
        self, layer: Parameters, states: Tensor, token: Tensor, mask: Tensor, rating: Tensor | None
    ) -> tuple[Tensor, Tensor, Parameters]:
        """Loss of one client, its gradient by the states ``(T, B, H)`` and by the last layer."""
        weight, bias = layer[f"{OUTPUT}.weight"], layer[f"{OUTPUT}.bias"]
        signal = torch.zeros_like(states)
        if rating is None:
            real = (token[1:] > 0) & mask
            loss, (signal[real], *of_layer) = word_loss_gradients(states[real], weight, bias, token[1:][real])
        else:
            last = last_states(states, token)
            gap = (functional.linear(last, weight, bias)[:, 0] - rating) * mask
            share = 1 / mask.sum().clamp(min=1)
            loss, slope = gap.square().sum() * share, (2 * share * gap)[:, None]
            at = last_places(token)
            signal[at, torch.arange(len(at), device=at.device)] = slope * weight
            of_layer = [slope.mT @ last, slope.sum(0)]
        return loss, signal, {f"{OUTPUT}.weight": of_layer[0], f"{OUTPUT}.bias": of_layer[1]}

    @property
    def _rates(self) -> bool:
        return self.network.task == "rating"


def last_places(token: Tensor) -> Tensor:
    """``(B,)`` where each of the texts ``(T, B)`` has its last word; 0 for an empty one."""
    return ((token > 0).sum(0) - 1).clamp(min=0)


def last_states(states: Tensor, token: Tensor) -> Tensor:
    """``(B, H)`` of states ``(T, B, H)`` those after the last word of the texts ``(T, B)``."""
    at = last_places(token)
    return states[at, torch.arange(len(at), device=at.device)]
