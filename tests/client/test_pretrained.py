"""Any network of the transformers library trains from its configuration; what is frozen is no parameter."""

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from fedleak.client.adapters import AdapterOptions
from fedleak.client.cohort import Cohort
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.network_tokens import exchanged
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.client.pretrained_examples import IMAGE, LABEL, TOKENS
from fedleak.client.transformer_networks import PretrainedTask
from fedleak.core.errors import InputError
from fedleak.core.named_by_strangers import from_plain
from tests.transformer_toys import LLAMA, algorithm, moved_model, texts, view_of

pytestmark = pytest.mark.integration
_HEADS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_SIZES = {**_HEADS, "intermediate_size": 64}
_WORDS = {**_SIZES, "vocab_size": 120, "max_position_embeddings": 66, "pad_token_id": 0}
_TEXT = {**_WORDS, "num_key_value_heads": 2}
_EIGHT = {**_TEXT, "head_dim": 8}
_SHORT = {"vocab_size": 120, "n_layer": 2, "n_head": 4}
_BERT = {**_WORDS, "num_labels": 3}
_IMAGE = {**_SIZES, "image_size": 16, "patch_size": 4, "num_labels": 3}
ARCHITECTURES: dict[str, tuple[PretrainedTask, dict[str, Any]]] = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "phi", "phi3", "olmo", "olmo2", "stablelm"), ("causal-lm", _TEXT)),
    **dict.fromkeys(("starcoder2", "cohere"), ("causal-lm", _TEXT)),
    "gpt_neox": ("causal-lm", _WORDS),
    **dict.fromkeys(("gemma", "gemma2", "qwen3"), ("causal-lm", _EIGHT)),
    "gpt2": ("causal-lm", {**_SHORT, "n_embd": 32, "n_positions": 64}),
    "gpt_neo": (
        "causal-lm",
        {"vocab_size": 120, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "attention_types": [[["global"], 2]]},
    ),
    "opt": ("causal-lm", {**_HEADS, "vocab_size": 120, "ffn_dim": 64, "word_embed_proj_dim": 32, "pad_token_id": 0}),
    "bloom": ("causal-lm", {**_SHORT, "hidden_size": 32}),
    "falcon": ("causal-lm", {**_HEADS, "vocab_size": 120}),
    "mpt": ("causal-lm", {"vocab_size": 120, "d_model": 32, "n_heads": 4, "n_layers": 2}),
    **dict.fromkeys(("bert", "roberta", "electra", "deberta-v2"), ("sequence-classification", _BERT)),
    "distilbert": (
        "sequence-classification",
        {"vocab_size": 120, "dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4},
    ),
    "vit": ("image-classification", _IMAGE),
    "swin": (
        "image-classification",
        {"image_size": 16, "patch_size": 2, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4},
    ),
}


def of_kind(kind: str, **adapter: Any) -> PretrainedAlgorithm:
    task, config = ARCHITECTURES[kind]
    return PretrainedAlgorithm(
        config=json.dumps({"model_type": kind, **config}),
        task=task,
        adapter=AdapterOptions(rank=4, **adapter),
        local=LocalTraining(learning_rate=0.1, batch_size=2, epochs=2),
    )


def cohort_of(own: PretrainedAlgorithm) -> Cohort:
    generator = torch.Generator().manual_seed(0)
    fields = {LABEL: torch.randint(0, 2, (2, 3), generator=generator)}
    if own.task == "image-classification":
        fields[IMAGE] = torch.rand(2, 3, 3, 16, 16, generator=generator)
    else:
        fields[TOKENS] = torch.randint(1, 100, (2, 3, 6), generator=generator)
    return Cohort(0, torch.arange(2), fields, torch.ones(2, 3, dtype=torch.bool))


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_a_configuration_is_enough_to_train_and_to_find_what_words_look_like(kind: str) -> None:
    own = of_kind(kind)
    model = own.first_model()
    assert not set(model) & set(own.frozen)
    update = own.train(model, cohort_of(own))
    assert all(bool(value.isfinite().all()) for value in update.deltas.values())
    assert any(bool(value.any()) for name, value in update.deltas.items() if "lora_B" in name)
    if own.task != "image-classification":
        first = own.first_inputs(6)
        assert first.vectors.shape[1] == 32
        assert set(first.tokens.tolist()) == set(range(1, 120))
        assert {b for _, b in first.adapters} <= set(model)


def test_a_client_computes_the_loss_of_the_library() -> None:
    own = algorithm()
    model, tokens = moved_model(), texts(1, 4)[0]
    found = own.loss(model, {TOKENS: tokens}, torch.ones(4, dtype=torch.bool))
    held = {name: model[public] for public, name in own.names.items()}
    network = copy.deepcopy(own.network)
    with torch.no_grad():
        network.load_state_dict(held, strict=False)
        expected = network(input_ids=tokens, labels=tokens).loss
    torch.testing.assert_close(found, expected)


def test_padding_of_another_number_is_read_by_the_network_as_its_own() -> None:
    own = algorithm()
    other = dataclasses.replace(own, padding=7)
    model, tokens = moved_model(), texts(1, 4)[0]
    tokens[:, 2] = 7
    padded = functional.pad(tokens, (0, 3))
    everyone = torch.ones(4, dtype=torch.bool)
    # To the network, 7 of an example is its 0, and the padding of an example its 7.
    in_network = exchanged(tokens, 7)
    held = {name: model[public] for public, name in own.names.items()}
    network = copy.deepcopy(own.network)
    with torch.no_grad():
        network.load_state_dict(held, strict=False)
        expected = network(input_ids=in_network, labels=in_network).loss
    torch.testing.assert_close(other.loss(model, {TOKENS: padded}, everyone), expected)
    # The vector of word 7 is that of the network's 0.
    assert torch.equal(
        other.first_inputs(6).vectors[torch.tensor(6)],
        own.adapted_inputs(model, torch.zeros(1, 1).long())[0].vectors[0, 0],
    )
    assert from_plain(type(own), {**other.arguments()}, where="", way_out="").padding == 7
    assert "padding" not in own.arguments()


def test_padding_and_absent_examples_change_nothing() -> None:
    own, tokens = algorithm(), texts(1, 2)[0]
    both = torch.ones(2, dtype=torch.bool)
    padded = torch.cat([functional.pad(tokens, (0, 3)), torch.ones(1, tokens.shape[1] + 3, dtype=torch.int64)])
    found = own.loss(moved_model(), {TOKENS: padded}, torch.tensor([True, True, False]))
    torch.testing.assert_close(found, own.loss(moved_model(), {TOKENS: tokens}, both))


def test_variants_train_what_they_say() -> None:
    assert not [name for name in algorithm(variant="ffa").first_model() if "lora_A" in name]
    assert {name.rpartition("lora_")[2] for name in algorithm().first_model()} == {"A.weight", "B.weight"}
    whole = algorithm(variant="none").first_model()
    assert all(name.startswith("network.") for name in whole)
    assert "network.model.embed_tokens.weight" in whole


def test_a_tied_table_that_is_trained_is_one_parameter() -> None:
    own = algorithm(variant="none", config={**LLAMA, "tie_word_embeddings": True})
    assert "network.lm_head.weight" not in own.first_model()
    deltas = view_of(own, texts(1, 1)).deltas
    assert all(bool(value.any()) for value in deltas.values())


def test_a_network_with_a_tied_table_that_is_trained_whole_is_the_one_that_was_recorded() -> None:
    own = algorithm(variant="none", config={**LLAMA, "tie_word_embeddings": True})
    again = from_plain(PretrainedAlgorithm, own.arguments(), where="a test", way_out="-")
    assert set(again.first_model()) == set(own.first_model())


@pytest.mark.parametrize(
    "spelling", ["base_model{}.default.weight", "model.base_model{}.weight", "base_model{}.weight"]
)
def test_three_spellings_of_adapters_are_read(spelling: str) -> None:
    own = algorithm()
    held = {
        spelling.format(name.removeprefix("base_model").removesuffix(".weight")): value
        for name, value in moved_model().items()
    }
    named = own.named_as({name: tuple(value.shape) for name, value in held.items()})
    mask = torch.ones(1, dtype=torch.bool)
    examples = {TOKENS: texts(1, 1)[0]}
    torch.testing.assert_close(named.loss(held, examples, mask), own.loss(moved_model(), examples, mask))
    assert set(named.first_model()) == set(held)


def test_a_recording_names_the_base_by_its_hash_and_no_folder(tmp_path: Path) -> None:
    own = algorithm()
    own.network.base_model.model.save_pretrained(tmp_path)  # type: ignore[operator, union-attr]
    arguments = own.arguments()
    assert "folder" not in arguments
    assert arguments["base"] == own.hash
    again = from_plain(PretrainedAlgorithm, arguments, where="a test", way_out="-")
    assert torch.equal(again.frozen["base_model.model.lm_head.weight"], own.frozen["base_model.model.lm_head.weight"])
    other = from_plain(PretrainedAlgorithm, {**arguments, "base_seed": 5}, where="a test", way_out="-")
    with pytest.raises(InputError, match=r"SHA-256 .*--learner\.path"):
        _ = other.network


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"targets": ("nowhere",)}, "adapter.targets among the layers"),
        ({"config": {"model_type": "no-such-model"}}, "known model_type"),
        ({"config": {**LLAMA, "hidden_size": 2**40}}, "network"),
    ],
)
def test_what_is_no_network_is_one_line(change: dict[str, Any], found: str) -> None:
    with pytest.raises(InputError, match=found) as caught:
        _ = algorithm(**change).network
    assert str(caught.value).count("\n") == 0
