"""What the first adapted layers read is known for each token, also at each place, however the network adds them."""

from typing import Any

import pytest
import torch

from fedleak.client import adapted_layers
from fedleak.client.adapted_layers import first_vectors, read_inputs
from fedleak.client.word_vectors import ComputedVectors, NormedSums, StoredVectors
from tests.transformer_toys import algorithm

_SIZES = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "hidden_size": 32}
BERT: dict[str, Any] = {"model_type": "bert", "vocab_size": 90, "max_position_embeddings": 20, **_SIZES}
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "vocab_size": 90,
    "n_positions": 20,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
}
ELECTRA: dict[str, Any] = {**BERT, "model_type": "electra", "embedding_size": 16}
"""After the layer norm, words of Electra are projected to another width."""
PLACES = 7


@pytest.mark.parametrize(
    ("config", "targets", "kind"),
    [
        (BERT, ("query", "value"), NormedSums),
        (GPT2, ("c_attn",), NormedSums),
        (ELECTRA, ("query", "value"), StoredVectors),
    ],
    ids=["bert", "gpt2", "electra"],
)
def test_candidates_are_what_is_read_of_a_text(config: dict[str, Any], targets: tuple[str, ...], kind: type) -> None:
    own = algorithm(config=config, targets=targets)
    vectors, tokens, _ = first_vectors(own.network, 90, PLACES)
    assert type(vectors) is kind
    assert len(vectors) == len(tokens) == 89 * PLACES
    text = torch.randint(1, 90, (3, PLACES), generator=torch.Generator().manual_seed(5))
    read = read_inputs(own.network, {"input_ids": text}, most=1)[0][0]
    candidates = (text - 1) * PLACES + torch.arange(PLACES)
    assert torch.equal(tokens[candidates], text)
    found = vectors[candidates.flatten()].float().reshape(read.shape)
    torch.testing.assert_close(found, read, rtol=1e-4, atol=1e-5)


def test_candidates_that_are_too_many_to_store_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    own = algorithm(config=ELECTRA, targets=("query", "value"))
    stored, _, _ = first_vectors(own.network, 90, PLACES)
    monkeypatch.setattr(adapted_layers, "_MOST_STORED", 100)
    computed, _, _ = first_vectors(own.network, 90, PLACES)
    assert isinstance(computed, ComputedVectors)
    matrix = torch.randn(3, 32, dtype=torch.float64)
    expected = stored.squares_along([matrix])[0]
    torch.testing.assert_close(computed.squares_along([matrix])[0], expected, rtol=1e-4, atol=1e-4)
