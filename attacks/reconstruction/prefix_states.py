"""What the words so far leave in a network that predicts the next one, extended by one word at a time.

A state is all that later inputs of the last layer depend on; it begins with the last layer's input itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.word_layers import DecoderLayers, RecurrentLayers
from fedleak.client.decoder import Decoder, DecoderLayer
from fedleak.client.engine.fast.lstm import LSTM
from fedleak.client.text import EMBEDDING

_BELOW_ONE = 1 - 1e-9
"""Largest value whose inverse hyperbolic tangent is taken; rounding may give 1."""
_LINKED = 0.02
"""Largest relative violation of two states that follow each other: true pairs have 1e-4, wrong ones 0.2 and more."""
_FAR = 1e6
"""Input of the last layer after a text that the network does not take; it equals no other one."""


class PrefixStates(Protocol):
    """States of prefixes."""

    @property
    def numbers(self) -> int:
        """Numbers of all layers that are computed for one state."""

    def empty(self) -> Tensor:
        """``(1, C)`` float64 state before the first word."""

    def after(self, states: Tensor, words: Tensor) -> Tensor:
        """``(P, W, C)`` states after every pair of a prefix ``(P, C)`` and a word ``(W,)``."""

    def links(self, before: Tensor, words: Tensor, after: Tensor) -> list[tuple[int, int, Tensor]]:
        """Pairs of inputs of the last layer that follow each other, whatever the words before them.

        Args:
            before: ``(A, D)`` inputs after some prefixes.
            words: ``(A,)`` the next word of each.
            after: ``(B, D)`` inputs after some longer prefixes.

        Returns:
            Places in `before` and in `after`, and the ``(C,)`` state of the former.
        """


@dataclass(frozen=True)
class RecurrentStates:
    """States of an LSTM: ``C = 2 H``, the hidden state and the cells.

    Attributes:
        words: ``(W, 4H)`` what each word adds to the gates.
        recurrent: ``(4H, H)`` weights of the hidden state.
    """

    words: Tensor
    recurrent: Tensor

    @classmethod
    def of_model(cls, model: Mapping[str, Tensor]) -> "RecurrentStates":
        """The states of a global model."""
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        enter, recurrent, *biases = (model[f"{LSTM}.{name}_l0"].double() for name in names)
        return cls(model[EMBEDDING].double() @ enter.T + sum(biases), recurrent)

    @property
    def numbers(self) -> int:
        return len(self.recurrent) + 2 * self.recurrent.shape[1]

    def empty(self) -> Tensor:
        return self.recurrent.new_zeros(1, 2 * self.recurrent.shape[1])

    def after(self, states: Tensor, words: Tensor) -> Tensor:
        hidden, cells = states.chunk(2, 1)
        entering, forget, output = self._gates(hidden[:, None], self.words[words])
        # c' = f c + i g;  h' = o tanh(c')
        cells_after = forget * cells[:, None] + entering
        return torch.cat([output * cells_after.tanh(), cells_after], dim=2)

    def links(self, before: Tensor, words: Tensor, after: Tensor) -> list[tuple[int, int, Tensor]]:
        """The hidden state h gives all gates of the next word, and with the next hidden state the cells c before it.

        They fit h only if each unit of h / tanh(c), which is an output gate, is between 0 and 1.
        """
        pairs = []
        for first, (hidden, word) in enumerate(zip(before, words, strict=True)):
            entering, forget, output = self._gates(hidden, self.words[word])
            # Backwards: tanh(c') = h' / o, and c = (atanh(h' / o) - i g) / f.
            tanh_after = after / output
            cells = (tanh_after.clamp(-_BELOW_ONE, _BELOW_ONE).atanh() - entering) / forget
            # The hidden state before is o tanh(c) for a gate o in (0, 1): of the same sign as tanh(c), and smaller.
            tanh_before = cells.tanh()
            too_large = (hidden.abs() - tanh_before.abs()).clamp(min=0)
            violation = torch.where(hidden * tanh_before < 0, hidden.abs(), too_large)
            violation = violation + (tanh_after.abs() - 1).clamp(min=0)
            is_linked = violation.norm(dim=1) <= _LINKED * hidden.norm()
            for second in is_linked.nonzero().flatten().tolist():
                pairs.append((first, second, torch.cat([hidden, cells[second]])))
        return pairs

    def _gates(self, hidden: Tensor, words: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What enters the cells, and the gates of forgetting and of output."""
        """What enters the cells, ``i g``, and the gates f of forgetting and o of output."""
        enter, forget, cell_input, output = (hidden @ self.recurrent.T + words).chunk(4, -1)
        return enter.sigmoid() * cell_input.tanh(), forget.sigmoid(), output.sigmoid()


@dataclass(frozen=True)
class DecoderStates:
    """States of a transformer decoder: the last layer's input and the words themselves, padded with 0.

    Attributes:
        body: the network between the word table and the last layer.
        table: ``(W, d)`` word table.
    """

    body: Decoder
    table: Tensor

    @classmethod
    def of_model(cls, layers: DecoderLayers, model: Mapping[str, Tensor]) -> "DecoderStates":
        """The states of a global model."""
        return cls(layers.body(model), model[EMBEDDING].double())

    @property
    def numbers(self) -> int:
        matrices = [value for value in self.body.layers[0].parameters() if value.dim() == 2]
        return len(self.body.layers) * sum(len(matrix) for matrix in matrices)

    @property
    def width(self) -> int:
        """Length d of a word's vector."""
        return self.table.shape[1]

    def empty(self) -> Tensor:
        return self.table.new_zeros(1, self.width + len(self.body.position.weight))

    def after(self, states: Tensor, words: Tensor) -> Tensor:
        prefixes = states[:, self.width :]
        lengths = (prefixes > 0).sum(1)
        longer = states[:, None].repeat(1, len(words), 1)
        longer[..., : self.width] = _FAR  # what stays so is too long for the network
        for length in torch.unique(lengths[lengths < prefixes.shape[1]]).tolist():
            of_length = (lengths == length).nonzero().flatten()
            longer[of_length, :, : self.width] = self._last_inputs(prefixes[of_length, :length].long(), words)
            longer[of_length, :, self.width + length] = words.double()
        return longer

    def links(self, before: Tensor, words: Tensor, after: Tensor) -> list[tuple[int, int, Tensor]]:
        """None: an input does not give those before it."""
        return []

    def _last_inputs(self, prefixes: Tensor, words: Tensor) -> Tensor:
        """``(P, W, d)`` inputs of the last layer after prefixes ``(P, L)`` and one more word."""
        length = prefixes.shape[1]
        positions = self.body.position.weight
        before = self.table[prefixes] + positions[:length]
        last = (self.table[words] + positions[length])[None]
        for layer in self.body.layers:
            assert isinstance(layer, DecoderLayer)
            # The last place reads the places before it as they enter the layer; these do not read it.
            before, last = layer(before), layer.at_last(before, last)
        inputs: Tensor = self.body.norm(last)
        return inputs


def prefix_states(layers: RecurrentLayers, model: Mapping[str, Tensor]) -> PrefixStates:
    """States of the prefixes of a global model."""
    if isinstance(layers, DecoderLayers):
        return DecoderStates.of_model(layers, model)
    return RecurrentStates.of_model(model)
