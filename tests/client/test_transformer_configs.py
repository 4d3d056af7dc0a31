"""A configuration names sizes and kinds of layers: no code, repository, kernel or file, and no size without bound."""

import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers.integrations import hub_kernels

from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.client.transformer_configs import MODEL_TYPES, offline, plain_configuration, read_configuration
from fedleak.client.transformer_networks import PretrainedTask
from fedleak.core.errors import InputError
from fedleak.modules.learners.pretrained import configuration
from tests.places import ROOT
from tests.transformer_toys import LLAMA, algorithm

pytestmark = pytest.mark.integration
TASKS = ("AutoModelForCausalLM", "AutoModelForSequenceClassification", "AutoModelForImageClassification")
FEW_LAYERS: dict[str, Any] = {
    "gpt_neo": {"num_layers": 2, "attention_types": [[["global"], 2]]},
    "ministral": {"head_dim": 8},
    "nemotron": {"num_key_value_heads": 2},
    "deit": {"architectures": ["DeiTForImageClassification"]},
}
"""What defaults of the library lack, or have too many of."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Hosts and kernels that were asked for, as if the package that fetches kernels were installed."""
    found: list[Any] = []

    def refuse(*given: Any, **_: Any) -> Any:
        found.append(given)
        raise OSError("blocked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(hub_kernels, "is_kernels_available", lambda *_, **__: True)
    monkeypatch.setattr(hub_kernels, "get_kernel", refuse)
    return found


@pytest.mark.parametrize("model_type", sorted(MODEL_TYPES))
def test_a_network_of_the_list_fetches_nothing_and_its_whole_file_is_read_again(
    model_type: str, asked: list[Any]
) -> None:
    config = read_configuration(json.dumps({"model_type": model_type, **FEW_LAYERS.get(model_type, {})}))
    kinds = [kind for kind in (getattr(transformers, name) for name in TASKS) if type(config) in kind._model_mapping]
    assert kinds
    for kind in kinds:
        with offline(), torch.device("meta"):
            assert sum(value.numel() for value in kind.from_config(config, attn_implementation="eager").parameters())
    whole = json.loads(config.to_json_string(use_diff=False))
    again = read_configuration(json.dumps(plain_configuration({**whole, "_name_or_path": "/srv/jane"})))
    assert again.to_dict() == config.to_dict()
    assert asked == []


GPT = {"model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 10, "n_positions": 8}
HOSTILE: list[tuple[dict[str, Any], PretrainedTask]] = [
    ({"model_type": "timm_wrapper", "architecture": "hf-hub:stranger/beacon"}, "image-classification"),
    ({"model_type": "timm_wrapper", "architecture": "local-dir:/etc"}, "image-classification"),
    ({"model_type": "timm_backbone", "backbone": "hf-hub:stranger/beacon"}, "image-classification"),
    *(
        ({**GPT, name: value}, "causal-lm")
        for name in ("attn_implementation", "_attn_implementation", "_attn_implementation_internal")
        for value in ("stranger/kernel", "kernels-community/flash-attn2@any", "flash_attention_2", {"": "a/b"})
    ),
    *(
        ({**GPT, name: value}, "causal-lm")
        for name, value in {
            "experts_implementation": "stranger/kernel",
            "auto_map": {"AutoModelForCausalLM": "stranger/repo--modeling.Evil"},
            "quantization_config": {"quant_method": "gptq", "tokenizer": "stranger/repo"},
            "transformers_weights": "../../outside.safetensors",
            "backbone": "hf-hub:stranger/beacon",
            "use_timm_backbone": True,
            "text_config": {"model_type": "timm_wrapper"},
            "per_layer_config": {"0": {"attn_implementation": "stranger/kernel"}},
            "kernel_config": {"RMSNorm": "stranger/kernel:RMSNorm"},
            "fusion_config": {"x": "y"},
            "distributed_config": {"tp_plan": "auto"},
            "activation_function": "stranger/kernel",
            "dtype": "hub",
            "torch_dtype": "os",
            "forward": 1,
            "__class__": 1,
            "to_dict": 1,
            "rope_scaling": {"rope_type": "stranger/kernel", "factor": 2.0},
            "n_positions": 2**31,
            "n_embd": 2**31,
            "n_layer": 257,
            "num_labels": 10**9,
            "vocab_size": 10**18,
            "summary_type": "x" * 65,
        }.items()
    ),
    ({**LLAMA, "layer_types": ["full_attention"] * 5000}, "causal-lm"),
    ({**LLAMA, "rope_parameters": {"rope_type": "yarn", "long_factor": [10**9] * 5000}}, "causal-lm"),
    (
        {"model_type": "gpt_neo", "num_layers": 10**6, "attention_types": [[["global"], 10**6]], "hidden_size": 8},
        "causal-lm",
    ),
    ({"model_type": "swin", "depths": [200, 200]}, "image-classification"),
]


@pytest.mark.parametrize(("config", "task"), HOSTILE, ids=lambda value: str(value)[:60])
def test_what_names_more_than_layers_is_one_line(
    config: dict[str, Any], task: PretrainedTask, asked: list[Any]
) -> None:
    hostile = PretrainedAlgorithm(config=json.dumps(config), task=task, local=algorithm().local)
    with pytest.raises(InputError) as caught:
        _ = hostile.network
    assert "\n" not in str(caught.value)
    assert asked == []


@pytest.mark.parametrize("text", ["", "[]", "{", '{"model_type": "gpt2", "model_type": "gpt2"}', '{"model_type": NaN}'])
def test_what_is_no_object_is_one_line(text: str) -> None:
    with pytest.raises(InputError, match="configuration of a network"):
        read_configuration(text)


def test_adapters_that_memory_does_not_hold_are_refused_before_they_are_made() -> None:
    with pytest.raises(InputError, match="numbers with its adapters"):
        _ = algorithm(rank=10**8).network


def test_what_a_user_gives_is_recorded_without_names_of_places(tmp_path: Path, caplog: Any) -> None:
    file = tmp_path / "config.json"
    named = {"_name_or_path": "/srv/jane", "auto_map": {"AutoModel": "a--b"}, "attn_implementation": "a/b"}
    file.write_text(json.dumps({**LLAMA, **named, "do_sample": True, "unknown_setting": 3, "rope_theta": 5e5}))
    held = json.loads(configuration(file))
    assert held == {**LLAMA, "rope_theta": 5e5}
    assert "unknown_setting" in caplog.text
    assert read_configuration(json.dumps(held)).rope_parameters["rope_theta"] == 5e5
    file.write_text(json.dumps({**LLAMA, "quantization_config": {"quant_method": "gptq"}}))
    with pytest.raises(InputError, match="not quantised"):
        configuration(file)


def test_no_request_passes_in_an_offline_block() -> None:
    from huggingface_hub import constants, get_session

    before = constants.HF_HUB_OFFLINE
    with offline(), pytest.raises(Exception, match="offline mode"):
        get_session().get("https://huggingface.co")
    assert before == constants.HF_HUB_OFFLINE


def test_the_page_has_the_list() -> None:
    page = " ".join((ROOT / "docs/audit/adapters.md").read_text(encoding="utf-8").split())
    page = page.partition("closed list")[2].partition("Of the `config")[0]
    assert set(re.findall(r"`([a-z0-9_-]+)`", page)) == MODEL_TYPES
