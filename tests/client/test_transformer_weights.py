"""Weights are read from safetensors of the folder alone: nothing that its other files or links name is opened."""

import dataclasses
import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.client.transformer_weights import read_weights
from fedleak.core.errors import InputError
from fedleak.modules.learners.pretrained import Pretrained
from tests.transformer_toys import LLAMA, algorithm

pytestmark = pytest.mark.integration


def saved(folder: Path) -> PretrainedAlgorithm:
    """A network in a folder, in one file."""
    folder.mkdir(exist_ok=True)
    network: Any = algorithm(seed=9).network
    held = {
        name.removeprefix("base_model.model.").replace("base_layer.", ""): value.clone()
        for name, value in network.state_dict().items()
        if "lora_" not in name
    }
    save_file(held, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(LLAMA))
    return dataclasses.replace(algorithm(), folder=folder)


def shards(folder: Path) -> None:
    """Several files in place of one, and their index."""
    held = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = {name: f"model-{place % 2 + 1:05d}-of-00002.safetensors" for place, name in enumerate(sorted(held))}
    for file in set(names.values()):
        save_file({name: value for name, value in held.items() if names[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))


def test_one_file_and_several_are_the_same_network(tmp_path: Path) -> None:
    one = saved(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    shards(tmp_path / "two")
    two = dataclasses.replace(one, folder=tmp_path / "two")
    assert one.hash == two.hash != algorithm().hash
    held = load_file(tmp_path / "one/model.safetensors")
    name = "model.embed_tokens.weight"
    assert torch.equal(one.frozen[f"base_model.model.{name}"], held[name])


def test_weights_in_another_format_alone_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "pytorch_model.bin").write_bytes(b"a pickle")
    with pytest.raises(InputError, match=r"pytorch_model\.bin alone.*save_pretrained"):
        Pretrained(path=str(tmp_path))
    drawn = Pretrained(path=str(tmp_path / "config.json"))
    assert drawn.algorithm.folder is None


@pytest.mark.parametrize(
    "named", ["../outside.safetensors", "/etc/hostname", "a/b.safetensors", 3, "x.bin", "a\0.safetensors"]
)
def test_an_index_names_files_beside_it(tmp_path: Path, named: Any) -> None:
    saved(tmp_path / "base")
    shards(tmp_path / "base")
    shutil.copy(tmp_path / "base/model-00001-of-00002.safetensors", tmp_path / "outside.safetensors")
    (tmp_path / "base/model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": named}}))
    with pytest.raises(InputError, match="names of safetensors files beside it"):
        read_weights(tmp_path / "base")


def test_a_link_out_of_the_folder_is_refused_but_that_of_the_cache(tmp_path: Path) -> None:
    own = saved(tmp_path / "base")
    (tmp_path / "base/model.safetensors").rename(tmp_path / "outside")
    (tmp_path / "base/model.safetensors").symlink_to(tmp_path / "outside")
    with pytest.raises(InputError, match="a link to"):
        read_weights(tmp_path / "base")
    snapshot = tmp_path / "models--a--b/snapshots/123"
    snapshot.mkdir(parents=True)
    (tmp_path / "models--a--b/blobs").mkdir()
    (tmp_path / "outside").rename(tmp_path / "models--a--b/blobs/456")
    (snapshot / "model.safetensors").symlink_to("../../blobs/456")
    assert dataclasses.replace(own, folder=snapshot).network is not None


def test_what_else_lies_in_the_folder_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files by which the library loads adapters, settings and code of others."""
    own = saved(tmp_path / "base")
    expected = own.hash

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    place = tmp_path / "with-more"
    shutil.copytree(tmp_path / "base", place)
    (place / "adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": "stranger/x", "peft_type": "LORA"})
    )
    (place / "generation_config.json").write_text("{")
    (place / "custom_generate").mkdir()
    (place / "custom_generate/generate.py").write_text("raise SystemExit(99)")
    assert dataclasses.replace(own, folder=place).hash == expected


def test_adapters_alone_are_no_network(tmp_path: Path) -> None:
    own = saved(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "adapter_model.safetensors")
    with pytest.raises(InputError, match=r"adapter_model\.safetensors.*base network"):
        _ = own.network
    (tmp_path / "model.safetensors").write_bytes(b"x")
    with pytest.raises(InputError, match="weights as safetensors in"):
        _ = dataclasses.replace(own, base_seed=1).network
