"""The inputs after a prefix are those of the whole text, with the network's cache and without."""

import dataclasses
from typing import Any

import pytest
import torch

from fedleak.client.prefix_inputs import PrefixInputs
from tests.transformer_toys import LLAMA, VOCABULARY, algorithm

pytestmark = pytest.mark.integration
GPT2: dict[str, Any] = {
    **{"model_type": "gpt2", "vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 16},
    **{"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
}


@pytest.mark.parametrize(("config", "targets"), [(LLAMA, ("q_proj", "v_proj")), (GPT2, ("c_attn",))])
@pytest.mark.parametrize("padding", [0, 7])
@pytest.mark.parametrize("keeps", [None, False])
def test_inputs_are_those_of_whole_texts(
    config: dict[str, Any], targets: tuple[str, ...], padding: int, keeps: bool | None
) -> None:
    clients = algorithm(config=config, targets=targets)
    clients = dataclasses.replace(clients, padding=padding)
    model = clients.first_model()
    words = torch.tensor([3, 9, 7])
    table = PrefixInputs(clients, model, [1])
    table._keeps = keeps
    for prefix in (torch.zeros(0, dtype=torch.int64), torch.tensor([5, 6]), torch.tensor([8, 7, 2, 1])):
        texts = torch.cat([prefix.expand(len(words), -1), words[:, None]], dim=1)
        expected = clients.adapted_inputs(model, texts)[1].vectors[:, -1]
        torch.testing.assert_close(table.after(prefix, words)[0], expected, rtol=1e-4, atol=1e-5)
    assert table._keeps is (keeps is None)
