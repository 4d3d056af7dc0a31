"""Transformer decoder: a causal network of layers with attention, normalised at their inputs, as in GPT-2."""

import torch
from torch import Tensor, nn
from torch.nn import functional


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
        self.query, self.key, self.value, self.merge = (nn.Linear(width, width) for _ in range(4))
        self.hidden_norm = nn.LayerNorm(width)
        self.enter, self.leave = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, inputs: Tensor) -> Tensor:
        """``(B, T, d)`` -> ``(B, T, d)``."""
        seen = self.norm(inputs)
        parts = (layer(seen).unflatten(2, (self.heads, -1)).transpose(1, 2) for layer in self._attention)
        attended = functional.scaled_dot_product_attention(*parts, is_causal=True)
        between = inputs + self.merge(attended.transpose(1, 2).flatten(2))
        made: Tensor = between + self.leave(functional.gelu(self.enter(self.hidden_norm(between))))
        return made

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
        places: largest number of words.
    """

    def __init__(self, *, width: int, layers: int, heads: int, hidden: int, places: int) -> None:
        super().__init__()
        self.position = nn.Embedding(places, width)
        self.layers = nn.ModuleList([DecoderLayer(width, heads, hidden) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)

    def layer_inputs(self, words: Tensor) -> list[Tensor]:
        """``(B, T, d)`` vectors of words -> inputs ``(B, T, d)`` of the attention of each layer, and of what follows."""
        made = [words + self.position.weight[: words.shape[1]]]
        for layer in self.layers:
            made.append(layer(made[-1]))
        norms = [layer.norm for layer in self.layers if isinstance(layer, DecoderLayer)]
        return [norm(one) for norm, one in zip([*norms, self.norm], made, strict=True)]

    def forward(self, words: Tensor) -> Tensor:
        """``(B, T, d)`` vectors of words -> ``(B, T, d)`` what the last layer makes of each place."""
        return self.layer_inputs(words)[-1]


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
