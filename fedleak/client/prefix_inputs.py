"""What the adapted layers of a language model read after a prefix of a text, for each of several next words."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedleak.client.adapted_layers import read_inputs
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.client.pretrained_examples import TOKENS, network_arguments

_SAME = 1e-4
"""Relative difference up to which inputs with and without kept keys and values are the same."""
_WORDS_AT_ONCE = 256


class PrefixInputs:
    """Inputs of adapted layers at the word after a prefix, of a network in which a place depends on those before.

    Keys and values of the prefix are computed once for all words that may follow (the network's own cache), if the
    network gives the same with and without; else each text is read from its beginning.

    Args:
        algorithm: clients that fine-tune a language model.
        model: the global model.
        layers: numbers of the inputs that are wanted, ascending, among those of `PretrainedAlgorithm.adapted_inputs`.
    """

    def __init__(self, algorithm: PretrainedAlgorithm, model: Mapping[str, Tensor], layers: Sequence[int]) -> None:
        self._algorithm = algorithm
        self._like = next(iter(model.values()))
        self._values = algorithm.network_values(dict(model))
        self._layers = list(layers)
        self._keeps: bool | None = None

    def after(self, prefix: Tensor, words: Tensor) -> list[Tensor]:
        """Inputs ``(W, d)`` of each layer at the last word of the prefix ``(L,)`` and each of the ``words (W,)``."""
        parts = [self._of_few(prefix, some) for some in torch.split(words, _WORDS_AT_ONCE)]
        return [torch.cat(of_layer) for of_layer in zip(*parts, strict=True)]

    def _of_few(self, prefix: Tensor, words: Tensor) -> list[Tensor]:
        if len(prefix) and self._keeps is None:
            # Two words of the first prefix show whether the network's cache gives what it gives without.
            probe = words[:2]
            self._keeps = self._are_same(self._with_cache(prefix, probe), self._from_beginning(prefix, probe))
        if len(prefix) and self._keeps:
            inputs = self._with_cache(prefix, words)
            assert inputs is not None
            return inputs
        return self._from_beginning(prefix, words)

    def _from_beginning(self, prefix: Tensor, words: Tensor) -> list[Tensor]:
        texts = torch.cat([prefix.expand(len(words), -1), words[:, None]], dim=1)
        return self._read(texts, {})

    def _with_cache(self, prefix: Tensor, words: Tensor) -> list[Tensor] | None:
        """None for a network without the library's cache."""
        from transformers import DynamicCache  # slow to import

        try:
            cache = DynamicCache()
            self._read(prefix[None], {"past_key_values": cache, "use_cache": True})
            cache.batch_repeat_interleave(len(words))
            return self._read(words[:, None], {"past_key_values": cache, "use_cache": True})
        except Exception:  # whatever the code of a network raises for an argument that it does not know
            if self._keeps:
                raise
            return None

    def _read(self, texts: Tensor, options: Mapping[str, Any]) -> list[Tensor]:
        """Inputs ``(N, d)`` of each layer at the last place of texts ``(N, L)``."""
        algorithm = self._algorithm
        arguments = network_arguments(algorithm.task, {TOKENS: texts}, self._like, algorithm.padding)
        inputs = read_inputs(
            algorithm.template, {**arguments, **options}, values=self._values, most=self._layers[-1] + 1
        )
        return [inputs[layer][0][:, -1] for layer in self._layers]

    @staticmethod
    def _are_same(cached: list[Tensor] | None, fresh: list[Tensor]) -> bool:
        if cached is None:
            return False
        pairs = zip(cached, fresh, strict=True)
        return all(bool((left - right).norm() <= _SAME * right.norm()) for left, right in pairs)
