"""Clients that train a small transformer decoder on texts.

References:
    [Radford19], section 2.3.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fedleak.client.algorithm import Shapes
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.nets.classifiers import check_layers
from fedleak.client.text import EMBEDDING, OUTPUT, PLACE, TextAlgorithm, TextOptions
from fedleak.core.errors import require
from fedleak.core.ranges import PositiveInt


class DecoderLayer(nn.Module):
    """Causal attention and two linear layers, each added to its input.

    Args:
        width: numbers of each place.
        heads: heads of the attention.
        hidden: units between the two linear layers.
    """

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.merge = nn.Linear(width, width)
        self.hidden_norm = nn.LayerNorm(width)
        self.enter = nn.Linear(width, hidden)
        self.leave = nn.Linear(hidden, width)

    def forward(self, inputs: Tensor) -> Tensor:
        """``(B, T, d)`` -> ``(B, T, d)``."""
        normed = self.norm(inputs)
        # Layer norm before each half, as in GPT-2; the heads become a dimension of their own.
        query, key, value = (layer(normed).unflatten(2, (self.heads, -1)).transpose(1, 2) for layer in self._attention)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        between = inputs + self.merge(attended.transpose(1, 2).flatten(2))
        return self._second_half(between)

    def between(self, before: Tensor, last: Tensor) -> Tensor:
        """What attention gives to the second half, of texts that continue others by one place.

        Args:
            before: ``(P, T, d)`` inputs of the layer at the T earlier places.
            last: ``(W, d)`` or ``(P, W, d)`` its inputs at the last place.

        Returns:
            ``(P, W, d)`` inputs of `enter` at the last place, for every pair.
        """
        normed: Tensor = self.hidden_norm(self._attended(before, last))
        return normed

    def at_last(self, before: Tensor, last: Tensor) -> Tensor:
        """``(P, W, d)`` outputs at the last place, with the arguments of `between`."""
        return self._second_half(self._attended(before, last))

    def _attended(self, before: Tensor, last: Tensor) -> Tensor:
        # Query, key and value of the last place, and keys and values of the places before it.
        query, own_key, own_value = self._projected(last)
        _, keys, values = self._projected(before)
        query = query.expand(len(before), -1, -1, -1)
        scores = torch.einsum("pwhd,pthd->pwht", query, keys)
        own_score = (query * own_key).sum(3)[..., None]
        # The last place attends to the earlier ones and to itself; scores are scaled by the root of the head's width.
        scale = query.shape[3] ** 0.5
        weights = (torch.cat([scores, own_score], dim=3) / scale).softmax(3)
        attended = torch.einsum("pwht,pthd->pwhd", weights[..., :-1], values) + weights[..., -1:] * own_value
        between: Tensor = last + self.merge(attended.flatten(2))
        return between

    def _second_half(self, between: Tensor) -> Tensor:
        normed = self.hidden_norm(between)
        outputs: Tensor = between + self.leave(functional.gelu(self.enter(normed)))
        return outputs

    def _projected(self, inputs: Tensor) -> list[Tensor]:
        """Query, key and value of each place ``(..., d)``: ``(..., heads, d / heads)``."""
        normed = self.norm(inputs)
        return [layer(normed).unflatten(-1, (self.heads, -1)) for layer in self._attention]

    @property
    def _attention(self) -> tuple[nn.Module, nn.Module, nn.Module]:
        return self.query, self.key, self.value


class Decoder(nn.Module):
    """Decoder with learned vectors of the places.

    Args:
        width: numbers of each word's vector, d.
        layers: number of layers.
        heads: heads of each layer's attention.
        hidden: hidden units of each layer.
        positions: largest number of words.
    """

    def __init__(self, *, width: int, layers: int, heads: int, hidden: int, positions: int) -> None:
        super().__init__()
        self.position = nn.Embedding(positions, width)
        self.layers = nn.ModuleList([DecoderLayer(width, heads, hidden) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)

    def forward(self, words: Tensor) -> Tensor:
        """``(B, T, d)`` vectors of words -> ``(B, T, d)`` what the last layer makes of each place."""
        states = words + self.position.weight[: words.shape[1]]
        for layer in self.layers:
            states = layer(states)
        normal: Tensor = self.norm(states)
        return normal


@torch.no_grad()
def draw_weights(decoder: Decoder, generator: torch.Generator) -> None:
    """Draws weights as in GPT-2, from N(0, 0.02^2); biases are 0 and normalisations the identity."""
    for name, value in decoder.named_parameters():
        if "norm" in name:
            value.fill_(float(name.endswith("weight")))
        elif name.endswith("bias"):
            value.zero_()
        else:
            value.normal_(std=0.02, generator=generator)


BODY = "decoder"
"""Name of the network between the word table and the last layer."""


@dataclass(frozen=True, kw_only=True)
class DecoderOptions(TextOptions):
    """Sizes of a decoder; `embedding` is the length d of all its vectors, `hidden` the hidden units of each layer.

    Attributes:
        layers: number of layers.
        heads: heads of each layer's attention.
        places: largest number of words of a text.
    """

    embedding: PositiveInt = 256
    hidden: PositiveInt = 1024
    layers: PositiveInt = 2
    heads: PositiveInt = 4
    places: PositiveInt = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        check_layers(self.layers)
        require(
            min(self.layers, self.heads, self.places) >= 1 and self.embedding % max(self.heads, 1) == 0,
            "layers, heads and places above 0, and an embedding that is a multiple of the heads",
            f"{self.layers}, {self.heads}, {self.places} and an embedding of {self.embedding}",
            "GPT-2 has 12, 12 and 1024, and 768.",
        )

    @property
    def states(self) -> int:
        return self.embedding

    def body(self) -> Decoder:
        """The network, with torch's default weights."""
        return Decoder(
            width=self.embedding,
            layers=self.layers,
            heads=self.heads,
            hidden=self.hidden,
            positions=self.places,
        )


@dataclass(frozen=True, kw_only=True)
class DecoderAlgorithm(TextAlgorithm):
    """Clients that train a decoder to predict the next words or ratings.

    Attributes:
        network: sizes and task.
    """

    name: ClassVar[str] = "decoder"

    network: DecoderOptions

    @property
    def template(self) -> Decoder:
        return self.network.body()

    def network_shapes(self, recorded: Shapes) -> dict[str, tuple[int, ...]]:
        sizes = self.network
        width = self.network.embedding
        with torch.device("meta"):
            body = {f"{BODY}.{name}": tuple(value.shape) for name, value in sizes.body().named_parameters()}
        return {
            EMBEDDING: (sizes.vocabulary, width),
            f"{OUTPUT}.weight": (sizes.outputs, width),
            f"{OUTPUT}.bias": (sizes.outputs,),
            **body,
        }

    def states(self, parameters: Parameters, examples: Parameters) -> Tensor:
        # Nothing is predicted from the last word, unless the task is a rating.
        rows = examples[PLACE] if self.rates else examples[PLACE][:, :-1]
        body = {n.removeprefix(f"{BODY}."): v for n, v in parameters.items() if n.startswith(f"{BODY}.")}
        vectors = functional.embedding(rows, parameters[EMBEDDING])
        outputs: Tensor = functional_call(self.body, body, (vectors,))
        return outputs.transpose(0, 1)

    def fast(self) -> None:
        return None
