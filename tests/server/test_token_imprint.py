"""The token imprint marks every place with its text's first word, and sorts words into bins of all blocks."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from fedleak.client.adapters import AdapterOptions
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.core.errors import InputError
from fedleak.server.token_imprint import Gpt2Layers, TokenImprint, marks_of
from tests.memory_toys import GPT2
from tests.transformer_toys import LLAMA, algorithm, texts

pytestmark = pytest.mark.integration
WORDS = 6


def whole(config: dict[str, Any] = GPT2) -> PretrainedAlgorithm:
    """Clients that train a whole network with ReLU."""
    content = json.dumps(config | {"activation_function": "relu"})
    local = LocalTraining(learning_rate=0.1)
    return PretrainedAlgorithm(config=content, local=local, adapter=AdapterOptions(variant="none"))


def imprinted(**options: Any) -> dict[str, Tensor]:
    """The model that the server sends."""
    manipulation = TokenImprint(**options)
    own_texts = texts(1, 200, WORDS, seed=1)[0]
    generator = torch.Generator().manual_seed(2)
    return manipulation.sent(whole().first_model(), own_texts, torch.arange(2), generator=generator).first


def read_by_block(model: dict[str, Tensor], tokens: Tensor) -> list[Tensor]:
    """``(N, L, D)`` what the feed-forward layers of the network itself read, for each block."""
    network = whole().network
    inputs = list[Tensor]()
    hooks = []
    for block in network.transformer.h:  # type: ignore[union-attr]
        hooks.append(block.mlp.register_forward_pre_hook(lambda _, given: inputs.append(given[0].detach())))
    try:
        values = {name.removeprefix("network."): value for name, value in model.items()}
        torch.func.functional_call(network, values, (), {"input_ids": tokens})
    finally:
        for hook in hooks:
            hook.remove()
    return inputs


def test_the_network_reads_what_the_server_computes() -> None:
    """Closed forms of the first attention and of the marks are what the network does."""
    model = imprinted()
    tokens = texts(1, 5, WORDS, seed=7)[0]
    first_read = read_by_block(model, tokens)[0]
    expected = TokenImprint().inputs(model, Gpt2Layers.of(model), tokens)
    torch.testing.assert_close(first_read.flatten(0, 1).double(), expected, rtol=1e-3, atol=1e-4)


def test_later_blocks_measure_the_same() -> None:
    first_read, second_read = read_by_block(imprinted(), texts(1, 5, WORDS, seed=7)[0])
    measured = slice(0, -1)
    first_read, second_read = (
        read[..., measured] - read[..., measured].mean(-1, True) for read in (first_read, second_read)
    )
    cosines = torch.cosine_similarity(first_read, second_read, dim=-1)
    assert float(cosines.min()) > 0.99


def test_words_are_in_different_bins() -> None:
    model = imprinted()
    layers = Gpt2Layers.of(model)
    tokens = texts(1, 20, WORDS, seed=7)[0]
    inputs = read_by_block(model, tokens)[0].flatten(0, 1)
    edges = torch.cat([-bias for _, bias in layers.units(model)])
    assert bool((edges.diff() >= 0).all())
    measured = inputs @ layers.units(model)[0][0][0]
    _, counts = torch.unique(torch.searchsorted(edges, measured), return_counts=True)
    # 120 words in 1,199 bins of equal probability: about 5 % share a bin, and more where laws are not normal.
    assert float((counts == 1).sum() / len(measured)) > 0.8


def test_marks_tell_first_words_apart() -> None:
    model = imprinted()
    marks = marks_of(model, Gpt2Layers.of(model), 6, torch.arange(1, 400))
    assert float(torch.pdist(marks).min()) > 0.01


@pytest.mark.parametrize(
    ("model", "examples", "word"),
    [
        (whole().first_model(), torch.zeros(0, 5, dtype=torch.int64), "texts"),
        (whole().first_model(), torch.zeros(3, 5, 96), "texts"),
        (algorithm().first_model(), texts(1, 5)[0], "GPT-2"),
        ({"network.model.layers.0.mlp.gate_proj.weight": torch.zeros(2, 2)}, texts(1, 5)[0], "Llama"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(model: dict[str, Tensor], examples: Tensor, word: str) -> None:
    assert LLAMA["model_type"] == "llama"
    with pytest.raises(InputError, match=word):
        TokenImprint().manipulated(model, examples, torch.arange(2), generator=torch.Generator())
