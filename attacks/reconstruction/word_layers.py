"""Inputs of the layers of a network that predicts words, whose gradients lie in the inputs' span.

The gradient of a linear layer is a sum of products with the layer's inputs, so its rows lie in their span. Inputs have
a 1 at the end, to which the gradient of the bias belongs. Words are numbers from 1; 0 is padding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from fedleak.client.decoder import BODY, Decoder, DecoderAlgorithm, DecoderLayer
from fedleak.client.engine.fast.lstm import LSTM
from fedleak.client.text import EMBEDDING, OUTPUT, TextAlgorithm


@dataclass(frozen=True)
class RecurrentLayers:
    """Layers of an LSTM."""

    algorithm: TextAlgorithm

    def layer_gradients(self, deltas: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Changes ``(V, M, D)`` of three layers, of which the last two may be one.

        The first layer's input is a sum of one part for its word and place, and one for the words before; the second
        is deeper; the third is the last, with a row for each word.
        """
        # The gates are one layer of the input (x_t, h_{t-1}, 1); the bias of the hidden state is the same once more.
        of_word = deltas[f"{LSTM}.weight_ih_l0"]
        of_hidden = deltas[f"{LSTM}.weight_hh_l0"]
        of_bias = deltas[f"{LSTM}.bias_ih_l0"]
        last = with_bias(deltas, (OUTPUT,))
        return torch.cat([of_word, of_hidden, of_bias[..., None]], dim=-1), last, last

    def word_inputs(self, model: Mapping[str, Tensor], position: int) -> Tensor:
        """``(W, D)`` float64 part of the first layer's input for every word at a place, from 0."""
        return functional.pad(model[EMBEDDING].double(), (0, self.algorithm.network.hidden + 1))

    def prefix_inputs(self, model: Mapping[str, Tensor], prefixes: Tensor) -> Tensor:
        """``(P, D)`` float64 part of the first layer's input for the words before: prefixes ``(P, L)``."""
        if prefixes.shape[1]:
            hidden = self._last_states(model, prefixes)
        else:
            hidden = prefixes.new_zeros(1, self.algorithm.network.hidden)  # before the first word
        return functional.pad(with_one(hidden.double()), (self.algorithm.network.embedding, 0))

    def deeper_inputs(self, model: Mapping[str, Tensor], prefixes: Tensor) -> Tensor:
        """``(P, D)`` float64 inputs of the second layer at the last word of prefixes ``(P, L)``, L > 0."""
        return self.last_inputs(model, prefixes)

    def last_inputs(self, model: Mapping[str, Tensor], prefixes: Tensor) -> Tensor:
        """``(P, D)`` float64 inputs of the last layer at the last word of prefixes ``(P, L)``, L > 0."""
        return with_one(self._last_states(model, prefixes))

    def _last_states(self, model: Mapping[str, Tensor], prefixes: Tensor) -> Tensor:
        """``(P, H)`` float64 hidden states after prefixes."""
        weights = {name.removeprefix(f"{LSTM}."): value.double() for name, value in model.items() if LSTM in name}
        inputs = functional.embedding(prefixes.T, model[EMBEDDING].double())
        _, (hidden, _) = functional_call(self.algorithm.body, weights, (inputs,))
        states: Tensor = hidden[0]
        return states


@dataclass(frozen=True)
class DecoderLayers(RecurrentLayers):
    """Layers of a transformer decoder."""

    algorithm: DecoderAlgorithm

    def layer_gradients(self, deltas: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        block = f"{BODY}.layers.0"
        attention = with_bias(deltas, [f"{block}.{part}" for part in ("query", "key", "value")])
        feed_forward = with_bias(deltas, [f"{block}.enter"])
        last = with_bias(deltas, [OUTPUT])
        return attention, feed_forward, last

    def word_inputs(self, model: Mapping[str, Tensor], position: int) -> Tensor:
        vectors = (model[EMBEDDING] + model[f"{BODY}.position.weight"][position]).double()
        scale = model[f"{BODY}.layers.0.norm.weight"].double()
        shift = model[f"{BODY}.layers.0.norm.bias"].double()
        return with_one(functional.layer_norm(vectors, vectors.shape[1:], scale, shift))

    def prefix_inputs(self, model: Mapping[str, Tensor], prefixes: Tensor) -> Tensor:
        return torch.zeros(max(len(prefixes), 1), self.algorithm.network.embedding + 1, dtype=torch.float64)

    def deeper_inputs(self, model: Mapping[str, Tensor], prefixes: Tensor) -> Tensor:
        body = self.body(model)
        table = model[EMBEDDING].double()
        # Prefixes that share all words but the last, and those that share the last, are computed once.
        padded = functional.pad(prefixes[:, :-1], (0, 1))  # `unique` takes no empty rows
        before, parent = torch.unique(padded, dim=0, return_inverse=True)
        before = before[:, :-1]
        words, word = torch.unique(prefixes[:, -1], return_inverse=True)
        length = before.shape[1]
        positions = body.position.weight
        layer = body.layers[0]
        assert isinstance(layer, DecoderLayer)
        inputs = layer.between(table[before] + positions[:length], table[words] + positions[length])
        return with_one(inputs[parent, word])

    def last_inputs(self, model: Mapping[str, Tensor], prefixes: Tensor) -> Tensor:
        outputs: Tensor = self.body(model)(functional.embedding(prefixes, model[EMBEDDING].double()))
        return with_one(outputs[:, -1])

    def body(self, model: Mapping[str, Tensor]) -> Decoder:
        """The network with the weights of a model, in double precision."""
        with torch.device("meta"):
            body = self.algorithm.network.body()
        weights = {}
        for name, value in model.items():
            if name.startswith(f"{BODY}."):
                weights[name.removeprefix(f"{BODY}.")] = value.double()
        body.load_state_dict(weights, assign=True)
        return body.requires_grad_(False)


def word_layers(algorithm: TextAlgorithm) -> RecurrentLayers:
    """The layers of the clients' network."""
    return DecoderLayers(algorithm) if isinstance(algorithm, DecoderAlgorithm) else RecurrentLayers(algorithm)


def with_one(inputs: Tensor) -> Tensor:
    """``(..., D)`` -> ``(..., D + 1)`` inputs of a layer, with the 1 that its bias multiplies."""
    return functional.pad(inputs, (0, 1), value=1.0)


def with_bias(deltas: Mapping[str, Tensor], layers: Sequence[str]) -> Tensor:
    """``(V, M, D + 1)`` changes of the weights and biases of layers with common inputs, one under the other."""
    changes = []
    for name in layers:
        changes.append(torch.cat([deltas[f"{name}.weight"], deltas[f"{name}.bias"][..., None]], dim=-1))
    return torch.cat(changes, dim=-2)
