"""What the adapted layers of a network read: their inputs, and whether those of the first ones are of single tokens."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedleak.client.nets.dropout import draw_noise
from fedleak.client.network_tokens import exchanged
from fedleak.client.word_vectors import ComputedVectors, NormedSums, StoredVectors, WordVectors
from fedleak.core.errors import ViewError

_TOKENS_AT_ONCE = 4096
_SAME = 1e-4
"""Relative difference of the inputs of a layer below which they are the same."""
_PROBES = 4
"""Random texts by which inputs of single tokens are told from mixtures of several."""
_MOST_STORED = 2**27
"""Numbers of all candidates, 512 MiB in float32, up to which they are stored instead of computed again and again."""


@dataclass(frozen=True)
class FirstInputs:
    """What the first adapted layers read, which no training of adapters changes.

    Attributes:
        vectors: ``(K, d)`` input for each candidate: a token, or a token at a place where places differ.
        tokens: ``(K,)`` token of each.
        adapters: names of A and B of each layer that reads these inputs: in the global model, of a frozen A in the
            network.
    """

    vectors: WordVectors | Tensor
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


class MixedInputsError(ViewError):
    """The first adapted layers read what depends on several tokens of a text."""


class _StopForward(Exception):  # noqa: N818 - no error
    """Ends a forward pass in which no further layer is of interest."""


@torch.no_grad()
def read_inputs(
    network: nn.Module,
    arguments: Mapping[str, Any],
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
    network: nn.Module,
    vocabulary: int,
    positions: int,
    padding: int = 0,
    values: Mapping[str, Tensor] | None = None,
) -> tuple[WordVectors, Tensor, list[str]]:
    """Inputs ``(K, d)`` of the first adapted layers for every token, their tokens ``(K,)``, and the layers' names.

    Where places differ, there is a candidate for each token at each place: millions, for a real vocabulary. They are
    not stored if they are layer norms of a token's vector plus a place's, as of BERT and GPT-2, nor if they are more
    than `_MOST_STORED` numbers.

    Args:
        network: a network that reads tokens.
        vocabulary: number of token numbers.
        positions: places of a text, of which each has an input of its own if places differ.
        padding: number that the network gives to padding, see `fedleak.client.network_tokens.exchanged`.
        values: values of the network; None for its own.

    Raises:
        MixedInputsError: the layers read what depends on other tokens of the text.
    """
    # A network with a vector for each place has so many places, and no more.
    positions = min(positions, getattr(network.config, "max_position_embeddings", None) or positions)
    # What the layers read of random texts, in which every token has others beside it.
    generator = torch.Generator().manual_seed(0)
    probe = torch.randint(1, vocabulary, (_PROBES, positions), generator=generator)
    of_probe, names = _read_first(network, exchanged(probe, padding), values)
    # If it is what they read of the same tokens alone, it depends neither on other tokens nor on the place.
    tokens = torch.arange(1, vocabulary)  # 0 is padding
    vectors = _read_in_parts(network, exchanged(tokens[:, None], padding), _TOKENS_AT_ONCE, values)[:, 0]
    if _alike(of_probe, vectors[probe - 1]):
        return StoredVectors(vectors), tokens, names
    # Else it may depend on the place. Candidate (v - 1) P + j is token v at place j.
    places = torch.arange(positions).expand_as(probe)
    of_candidates = ((probe - 1) * positions + places).flatten()
    candidates = _at_places(network, exchanged(tokens, padding), positions, values)
    if not _alike(of_probe.flatten(0, 1), candidates[of_candidates]):
        candidates = _one_by_one(network, exchanged(tokens, padding), positions, of_probe.shape[-1], values)
        if not _alike(of_probe.flatten(0, 1), candidates[of_candidates]):
            raise MixedInputsError(
                "expected adapters below all attention; the first ones read a mixture of several tokens, from which no"
                " single word can be read; try `adapter-sentences`, which tries every word of the vocabulary at each"
                " place"
            )
        if math.prod(candidates.shape) <= _MOST_STORED:
            candidates = StoredVectors(candidates[torch.arange(len(candidates))])
    return candidates, tokens.repeat_interleave(positions), names


def _at_places(network: nn.Module, tokens: Tensor, positions: int, values: Mapping[str, Tensor] | None) -> WordVectors:
    """Candidates as layer norms of sums of a token's and a place's vector; of no meaning in another network."""
    parts = [_before_norm(network, part[:, None], values)[1][:, 0] for part in torch.split(tokens, _TOKENS_AT_ONCE)]
    at_first_place = torch.cat(parts).double()
    norm, at_all_places = _before_norm(network, tokens[:1].expand(1, positions), values)
    of_places = at_all_places[0].double()
    of_places = of_places - of_places[0]
    gain = _value_of(network, norm, "weight", values)
    if gain is None:
        gain = torch.ones(of_places.shape[1])
    bias = _value_of(network, norm, "bias", values)
    if bias is None:
        bias = torch.zeros(of_places.shape[1])
    return NormedSums(
        words=at_first_place - at_first_place.mean(1, keepdim=True),
        places=of_places - of_places.mean(1, keepdim=True),
        gain=gain.double(),
        bias=bias.double(),
        epsilon=norm.eps,
    )


def _value_of(network: nn.Module, norm: nn.Module, name: str, values: Mapping[str, Tensor] | None) -> Tensor | None:
    """A parameter of a layer norm, of the given values if it is one of the network."""
    for path, module in network.named_modules():
        if module is norm and values is not None:
            return values.get(f"{path}.{name}")
    parameter: Tensor | None = getattr(norm, name)
    return None if parameter is None else parameter.detach()


def _before_norm(
    network: nn.Module, tokens: Tensor, values: Mapping[str, Tensor] | None
) -> tuple[nn.LayerNorm, Tensor]:
    """The last layer norm before the first adapted layers and its input ``(N, L, d)``; without one, no norm at all."""
    seen = list[tuple[nn.LayerNorm, Tensor]]()

    def note(norm: nn.Module, read: tuple[Tensor, ...]) -> None:
        if isinstance(norm, nn.LayerNorm):
            seen.append((norm, read[0]))

    norms = [module for module in network.modules() if isinstance(module, nn.LayerNorm)]
    hooks = [norm.register_forward_pre_hook(note) for norm in norms]
    try:
        # It ends at the first adapted layer, after which there are more norms.
        vectors, _ = read_inputs(network, {"input_ids": tokens}, values=values, stop=1)[0]
    finally:
        for hook in hooks:
            hook.remove()
    if not seen:
        return nn.LayerNorm(vectors.shape[-1]), vectors
    return seen[-1]


def _one_by_one(
    network: nn.Module, tokens: Tensor, positions: int, numbers: int, values: Mapping[str, Tensor] | None
) -> WordVectors:
    """Candidates as the network reads them, each token at every place in a text of this token alone."""

    def compute(candidates: Tensor) -> Tensor:
        words, of_word = torch.unique(candidates // positions, return_inverse=True)
        texts = tokens[words][:, None].expand(-1, positions)
        read = _read_in_parts(network, texts, max(1, _TOKENS_AT_ONCE // positions), values)
        return read[of_word, candidates % positions]

    return ComputedVectors(compute, len(tokens) * positions, numbers)


def _read_first(network: nn.Module, tokens: Tensor, values: Mapping[str, Tensor] | None) -> tuple[Tensor, list[str]]:
    """``(N, L, d)`` input of the first adapted layers for texts ``(N, L)``, and the names of these layers."""
    return read_inputs(network, {"input_ids": tokens}, values=values, most=1)[0]


def _read_in_parts(network: nn.Module, tokens: Tensor, size: int, values: Mapping[str, Tensor] | None) -> Tensor:
    """`_read_first` of many texts, ``size`` at a time, up to the first adapted layer."""
    parts: Sequence[Tensor] = torch.split(tokens, size)
    return torch.cat([read_inputs(network, {"input_ids": part}, values=values, stop=1)[0][0] for part in parts])


def _alike(vectors: Tensor, expected: Tensor) -> bool:
    if vectors.shape != expected.shape:
        return False
    return bool((vectors - expected).norm() <= _SAME * expected.norm())
