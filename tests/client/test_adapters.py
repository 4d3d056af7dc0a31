"""What clients train next to adapters, the names that peft gives it, and the network that computes it."""

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

from fedleak.client.adapter_shape import adapter_names
from fedleak.client.adapters import AdapterOptions, state_dict_name
from fedleak.client.pretrained_examples import TOKENS
from fedleak.core.errors import InputError
from tests.transformer_toys import LLAMA, QUERY_AND_VALUE, RANK, algorithm, texts

BIASED = {**LLAMA, "attention_bias": True}
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "DoRA": ({"variant": "dora"}, {"use_dora": True}),
    "all biases": ({"bias": "all"}, {"bias": "all"}),
    "biases of adapted layers": ({"bias": "lora_only"}, {"bias": "lora_only"}),
    "output layer": ({"whole": ("lm_head",)}, {"modules_to_save": ["lm_head"]}),
    "table of words": ({"whole": ("embed_tokens",)}, {"modules_to_save": ["embed_tokens"]}),
    "block 1": ({"layers": (1,)}, {"layers_to_transform": [1]}),
}
"""Options here, and in peft."""


@pytest.mark.integration
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_trained_is_what_peft_trains(kind: str) -> None:
    options, in_peft = KINDS[kind]
    own = algorithm(config=BIASED, **options)
    base = AutoModelForCausalLM.from_config(AutoConfig.for_model(**BIASED))  # type: ignore[no-untyped-call]
    theirs = get_peft_model(base, LoraConfig(r=RANK, target_modules=list(QUERY_AND_VALUE), **in_peft))
    trained = {name for name, value in theirs.named_parameters() if value.requires_grad}
    assert set(own.names.values()) == trained
    # Every one of them moves, and what is added stays within what memory was asked for.
    model = own.first_model()
    gradients = torch.func.grad(lambda values: own.outputs(values, {TOKENS: texts(1, 2)[0]}).square().sum())(model)
    assert all(bool(value.any()) for name, value in gradients.items() if "lora_A" not in name)
    added = sum(value.numel() for value in theirs.parameters()) - sum(
        value.numel() for name, value in theirs.named_parameters() if "lora_" not in name and "modules_to" not in name
    )
    plain = AutoModelForCausalLM.from_config(AutoConfig.for_model(**BIASED))  # type: ignore[no-untyped-call]
    assert own.adapter.most_added(plain) >= added


@pytest.mark.integration
def test_dropout_of_dora_drops_inputs_as_that_of_lora_does() -> None:
    own = algorithm(variant="dora", dropout=0.5)
    layers = [layer for layer in own.network.modules() if hasattr(layer, "lora_A")]
    assert all(layer.training for layer in layers)
    assert own.random
    # Magnitudes of 1 draw through A and B alone where these are zero, so that a forward pass shows it.
    assert not any(layer.training for layer in algorithm(variant="dora").network.modules())


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("q.lora_A.default.weight", "q.lora_A.weight"),
        ("q.lora_B.mine.weight", "q.lora_B.weight"),
        ("q.lora_A.weight", "q.lora_A.weight"),
        ("q.lora_magnitude_vector.mine.weight", "q.lora_magnitude_vector"),
        ("q.lora_magnitude_vector", "q.lora_magnitude_vector"),
        ("head.modules_to_save.mine.weight", "head.weight"),
        ("q.base_layer.bias", "q.base_layer.bias"),
        ("embed.lora_embedding_A.mine", "embed.lora_embedding_A"),
    ],
)
def test_names_are_those_of_pefts_state_dict(name: str, plain: str) -> None:
    assert state_dict_name(name) == plain
    assert adapter_names([name]) == [part for part in ("default", "mine") if part in name]


@pytest.mark.parametrize("extra", [{"layers": (0,)}, {"whole": ("lm_head",)}, {"bias": "all"}])
def test_a_network_that_is_trained_whole_has_nothing_next_to_adapters(extra: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"adapter.variant none alone.*adapter.{next(iter(extra))}"):
        AdapterOptions(variant="none", **extra)
