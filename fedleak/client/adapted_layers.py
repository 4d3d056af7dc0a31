"""What the adapted layers of a network read: their inputs, and whether those of the first ones are of single tokens."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedleak.client.nets.dropout import draw_noise
from fedleak.client.network_tokens import exchanged
from fedleak.core.errors import ViewError

_TOKENS_AT_ONCE = 4096
_SAME = 1e-4
"""Relative difference of the inputs of a layer below which they are the same."""
_PROBES = 4
"""Random texts by which inputs of single tokens are told from mixtures of several."""


@dataclass(frozen=True)
class FirstInputs:
    """What the first adapted layers read, which no training of adapters changes.

    Attributes:
        vectors: ``(K, d)`` input for each candidate: a token, or a token at a place where places differ.
        tokens: ``(K,)`` token of each.
        adapters: names of A and B of each layer that reads these inputs: in the global model, of a frozen A in the
            network.
    """

    vectors: Tensor
    tokens: Tensor
    adapters: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class LayerInputs:
    """What adapted layers read that read the same.

    Attributes:
        vectors: ``(N, L, d)`` input at each place of each record.
        adapters: names of A and B of each of these layers: in the global model, of a frozen A in the network.
    """

    vectors: Tensor
    adapters: tuple[tuple[str, str], ...]


class _StopForward(Exception):  # noqa: N818 - no error
    """Ends a forward pass in which no further layer is of interest."""


@torch.no_grad()
def read_inputs(
    network: nn.Module,
    arguments: Mapping[str, Tensor],
    *,
    values: Mapping[str, Tensor] | None = None,
    most: int | None = None,
    stop: int | None = None,
) -> list[tuple[Tensor, list[str]]]:
    """Inputs ``(N, L, d)`` of adapted layers without dropout, each with the names of the layers that read it.

    Args:
        network: the network.
        arguments: its arguments.
        values: values of the network; None for its own.
        most: number of different inputs that are needed; None for all.
        stop: number of layers after whose reading the forward pass ends; None for all.
    """
    inputs: list[tuple[Tensor, list[str]]] = []
    layers = [(name, layer) for name, layer in network.named_modules() if hasattr(layer, "lora_A")]
    last = stop or len(layers)

    def add(name: str, vectors: Tensor) -> None:
        """Notes that a layer reads these vectors; layers that read the very same tensor share an entry."""
        same = [names for earlier, names in inputs if earlier is vectors]
        if same:
            same[0].append(name)
        elif len(inputs) == most:
            raise _StopForward
        else:
            inputs.append((vectors, [name]))
        if sum(len(names) for _, names in inputs) == last:
            raise _StopForward  # the last layer is slow: it has a row for every token

    draw_noise(network, None)
    hooks = []
    for name, layer in layers:
        hooks.append(layer.register_forward_pre_hook(lambda _, read, name=name: add(name, read[0])))
    try:
        with contextlib.suppress(_StopForward):
            functional_call(network, dict(values or {}), (), dict(arguments), tie_weights=False)
    finally:
        for hook in hooks:
            hook.remove()
    return inputs


def first_vectors(
    network: nn.Module, vocabulary: int, positions: int, padding: int = 0
) -> tuple[Tensor, Tensor, list[str]]:
    """Inputs ``(K, d)`` of the first adapted layers for every token, their tokens ``(K,)``, and the layers' names.

    Args:
        network: a network that reads tokens.
        vocabulary: number of token numbers.
        positions: places of a text, of which each has an input of its own if places differ.
        padding: number that the network gives to padding, see `fedleak.client.network_tokens.exchanged`.

    Raises:
        ViewError: the layers read what depends on other tokens of the text.
    """
    # What the layers read of random texts, in which every token has others beside it.
    generator = torch.Generator().manual_seed(0)
    probe = torch.randint(1, vocabulary, (_PROBES, positions), generator=generator)
    of_probe, names = _read_first(network, exchanged(probe, padding))
    # If it is what they read of the same tokens alone, it depends neither on other tokens nor on the place.
    tokens = torch.arange(1, vocabulary)  # 0 is padding
    vectors = _read_in_parts(network, exchanged(tokens[:, None], padding), _TOKENS_AT_ONCE)[:, 0]
    if _alike(of_probe, vectors[probe - 1]):
        return vectors, tokens, names
    # Else it may depend on the place: each token at every place, in a text of this token alone.
    repeated = exchanged(tokens[:, None].expand(-1, positions), padding)
    everywhere = _read_in_parts(network, repeated, max(1, _TOKENS_AT_ONCE // positions))
    if not _alike(of_probe, everywhere[probe - 1, torch.arange(positions)]):
        raise ViewError("expected adapters below all attention; the first ones read a mixture of several tokens")
    return everywhere.flatten(0, 1), tokens.repeat_interleave(positions), names


def _read_first(network: nn.Module, tokens: Tensor) -> tuple[Tensor, list[str]]:
    """``(N, L, d)`` input of the first adapted layers for texts ``(N, L)``, and the names of these layers."""
    return read_inputs(network, {"input_ids": tokens}, most=1)[0]


def _read_in_parts(network: nn.Module, tokens: Tensor, size: int) -> Tensor:
    """`_read_first` of many texts, ``size`` at a time."""
    parts: Sequence[Tensor] = torch.split(tokens, size)
    return torch.cat([_read_first(network, part)[0] for part in parts])


def _alike(vectors: Tensor, expected: Tensor) -> bool:
    return bool((vectors - expected).norm() <= _SAME * expected.norm())
