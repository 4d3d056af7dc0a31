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
        query, key, value = (layer(seen).unflatten(2, (self.heads, -1)).transpose(1, 2) for layer in self._attention)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        between = inputs + self.merge(attended.transpose(1, 2).flatten(2))
        made: Tensor = between + self.leave(functional.gelu(self.enter(self.hidden_norm(between))))
        return made

    def between(self, before: Tensor, last: Tensor) -> Tensor:
        """What attention gives to the second half, of texts that continue others by one place.

        Args:
            before: ``(P, T, d)`` inputs of the layer at the T earlier places.
            last: ``(W, d)`` its inputs at the last place.

        Returns:
            ``(P, W, d)`` inputs of `enter` at the last place, for every pair.
        """
        (query, own_key, own_value), (_, keys, values) = (
            [layer(self.norm(inputs)).unflatten(-1, (self.heads, -1)) for layer in self._attention]
            for inputs in (last, before)
        )
        scores = torch.einsum("whd,pthd->pwht", query, keys)
        own = (query * own_key).sum(2).expand(len(before), -1, -1)[..., None]
        weights = (torch.cat([scores, own], dim=3) / query.shape[2] ** 0.5).softmax(3)
        attended = torch.einsum("pwht,pthd->pwhd", weights[..., :-1], values) + weights[..., -1:] * own_value
        made: Tensor = self.hidden_norm(last + self.merge(attended.flatten(2)))
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

    def forward(self, words: Tensor) -> Tensor:
        """``(B, T, d)`` vectors of words -> ``(B, T, d)`` what the last layer makes of each place."""
        made = words + self.position.weight[: words.shape[1]]
        for layer in self.layers:
            made = layer(made)
        normal: Tensor = self.norm(made)
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
