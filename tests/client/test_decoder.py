"""The decoder is causal, and its attention for many continuations is that of the layer itself."""

import torch

from fedleak.client.decoder import Decoder, DecoderLayer, draw_weights
from fedleak.core.seeding import generator_for


def decoder() -> Decoder:
    made = Decoder(width=16, layers=2, heads=2, hidden=24, positions=6)
    draw_weights(made, generator_for(0, "decoder"))
    return made.double().requires_grad_(False)


def inputs(count: int, places: int) -> torch.Tensor:
    return torch.randn(count, places, 16, generator=generator_for(1, "inputs"), dtype=torch.float64)


def test_no_place_sees_later_ones() -> None:
    words = inputs(3, 6)
    torch.testing.assert_close(decoder()(words)[:, :4], decoder()(words[:, :4]))
    changed = words.clone()
    changed[:, 2] *= -1  # a constant would be normalised away
    assert (decoder()(changed) - decoder()(words)).abs().amax((0, 2)).gt(1e-6).tolist() == [False] * 2 + [True] * 4


def test_words_at_another_place_give_another_state() -> None:
    words = inputs(1, 1).expand(1, 3, 16)
    made = decoder()(words)
    assert float((made[0, 0] - made[0, 2]).abs().max()) > 1e-3


def test_continuations_have_the_inputs_that_the_layer_has() -> None:
    layer = decoder().layers[0]
    assert isinstance(layer, DecoderLayer)
    found: list[torch.Tensor] = []
    layer.enter.register_forward_pre_hook(lambda _, given: found.append(given[0]))
    before, last = inputs(3, 4), inputs(5, 1)[:, 0]
    pairs = torch.cat([before[:, None].expand(3, 5, 4, 16), last[None, :, None].expand(3, 5, 1, 16)], dim=2)
    layer(pairs.flatten(0, 1))
    torch.testing.assert_close(layer.between(before, last).flatten(0, 1), found[0][:, -1])
    layer(last[:, None])
    torch.testing.assert_close(layer.between(before[:1, :0], last)[0], found[1][:, -1])
