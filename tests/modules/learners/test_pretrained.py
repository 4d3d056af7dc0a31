"""A training with adapters is recorded without its base, which the auditor gives; other texts and paths are refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from fedleak.attacks.words.adapter_words import AdapterWords
from fedleak.attacks.words.estimates import WordSetEstimate
from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.client.adapters import AdapterOptions
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.commands import program
from fedleak.commands.shared.open_recording import open_recording
from fedleak.core.errors import InputError
from fedleak.datamodules.devices.blog import Blog
from fedleak.datamodules.devices.synthetic_posts import SyntheticPosts
from fedleak.datamodules.devices.tokenization import TokenizationOptions
from fedleak.datamodules.devices.user_filter import UserFilter
from fedleak.datamodules.images.synthetic_images import SyntheticImages
from fedleak.evaluation.auditing import audit
from fedleak.modules.learners.pretrained import Pretrained
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording
from fedleak.training.round_record import TrainingExamples
from tests.attacks.runs import run
from tests.datamodules import owned_files
from tests.places import ROOT
from tests.token_files import write_tokens
from tests.toys import quiet_trainer
from tests.transformer_toys import LLAMA, QUERY_AND_VALUE, algorithm

pytestmark = pytest.mark.integration
WORDS = 60
CONFIG = {**LLAMA, "vocab_size": WORDS}


def folder_of(place: Path, *, weights: bool, **config: Any) -> Path:
    place.mkdir()
    if weights:
        network = algorithm(config={**CONFIG, **config}, seed=9).network
        network.base_model.model.save_pretrained(place)  # type: ignore[operator, union-attr]
    else:
        (place / "config.json").write_text(json.dumps({**CONFIG, **config}))
    return place


WORDS_OF_POSTS = ("the", "cat", "sat", "on")


def write_posts(root: Path) -> None:
    """Two posts of three bloggers each, in words of `tests.token_files`."""
    posts = ["zero the cat sat on", "on the cat zero sat"]
    rows = [(str(blogger), f"0{day},August,2004", posts[day - 1]) for blogger in (5, 9, 23) for day in (1, 2)]
    owned_files.write_blog_csv(root, rows)


def trained(place: Path, base: Path, rounds: int = 2) -> Recording:
    adapter = AdapterOptions(rank=4, targets=QUERY_AND_VALUE)
    module = Pretrained(path=str(base), adapter=adapter, local=LocalTraining(learning_rate=0.5, batch_size=None))
    data = SyntheticPosts(writers=6, posts=8, vocabulary=WORDS, length=8, clients_per_round=0.5)
    quiet_trainer(rounds, place, DeltaRecorder(directory=str(place / "deltas"))).fit(module, datamodule=data)
    return Recording(place / "deltas")


def test_adapters_alone_are_recorded_and_tell_words(tmp_path: Path) -> None:
    recording = trained(tmp_path, folder_of(tmp_path / "base", weights=False))
    assert all("lora_" in name for name in recording.manifest.parameters)
    with safe_open(tmp_path / "deltas/rounds/000001-0000.safetensors", "pt") as shard:
        assert not [name for name in shard.keys() if "lm_head" in name or "embed" in name]  # noqa: SIM118 - no mapping
    found = audit(recording, ["adapter-words", "popular-words"], progress=False)
    rows = found.results.set_index(["attack", "metric"])["mean"]
    assert rows["adapter-words", "auc"] > 0.6


def test_the_weights_of_a_folder_are_needed_again(tmp_path: Path) -> None:
    base = folder_of(tmp_path / "base", weights=True)
    trained(tmp_path, base)
    described = (tmp_path / "deltas/manifest.json").read_text()
    assert str(base) not in described
    with pytest.raises(InputError, match=r"SHA-256 .*--learner\.path DIR"):
        audit(open_recording(tmp_path / "deltas"), ["adapter-words"], progress=False)
    given = open_recording(tmp_path / "deltas", arguments={"path": str(base)})
    found = audit(given, ["adapter-words"], progress=False).results
    assert "adapter-words" in set(found["attack"])
    other = folder_of(tmp_path / "other", weights=False)
    with pytest.raises(InputError, match="SHA-256"):
        audit(open_recording(tmp_path / "deltas", arguments={"path": str(other)}), ["adapter-words"], progress=False)
    with pytest.raises(InputError, match=r"--learner\.path .*found --learner\.folder"):
        open_recording(tmp_path / "deltas", arguments={"folder": str(base)})


def test_what_was_trained_is_a_folder_that_can_be_trained_again(tmp_path: Path) -> None:
    base, local = folder_of(tmp_path / "base", weights=False), LocalTraining(learning_rate=0.5, batch_size=None)
    data = SyntheticPosts(writers=6, posts=8, vocabulary=WORDS, length=8, clients_per_round=0.5)
    whole = Pretrained(path=str(base), adapter=AdapterOptions(variant="none"), local=local)
    quiet_trainer(1, tmp_path / "run").fit(whole, datamodule=data)
    again = Pretrained(path=str(tmp_path / "run/network"), adapter=AdapterOptions(variant="none"), local=local)
    values = again.public_parameters()
    assert all(torch.equal(value, values[name]) for name, value in whole.public_parameters().items())
    quiet_trainer(1, tmp_path / "next").fit(
        Pretrained(path=str(tmp_path / "run/network"), local=local), datamodule=data
    )
    assert (tmp_path / "next/network/adapter_model.safetensors").is_file()


def test_texts_in_the_networks_own_tokens_are_trained_recorded_and_read_back(tmp_path: Path) -> None:
    network = folder_of(tmp_path / "base", weights=True, pad_token_id=1)  # the vector of padding is zero
    base = write_tokens(network, first=("zero",), special=("<|endoftext|>",))
    write_posts(tmp_path)
    options = TokenizationOptions(tokens=base, words=6)
    data = Blog(root=str(tmp_path), users=UserFilter(fewest=1), text=options, clients_per_round=1.0)
    local = LocalTraining(learning_rate=0.5, batch_size=None)
    module = Pretrained(path=str(base), adapter=AdapterOptions(rank=4, targets=QUERY_AND_VALUE), local=local)
    recorder = DeltaRecorder(directory=str(tmp_path / "deltas"))
    quiet_trainer(2, tmp_path, recorder).fit(module, datamodule=data)
    assert (tmp_path / "network/tokenizer.json").read_bytes() == (base / "tokenizer.json").read_bytes()
    recording = open_recording(tmp_path / "deltas", arguments={"path": str(base)})
    learner = recorded_learner(recording)
    assert isinstance(learner, PretrainedAlgorithm)
    assert learner.padding == 1
    view = list(recording.views(learner=learner))[1]
    found = run(AdapterWords(), view, WordSetEstimate)
    read = recording.truth(view)["read_words"]
    assert learner.tokens is not None
    assert {learner.tokens.token(number) for number in read.flatten().tolist() if number} == {"zero", *WORDS_OF_POSTS}
    for decisions, words in zip(found.decisions, read, strict=True):
        assert set(decisions.nonzero().flatten().tolist()) == set(words.tolist()) - {0}


def test_texts_of_another_networks_tokens_are_refused(tmp_path: Path) -> None:
    base = write_tokens(folder_of(tmp_path / "base", weights=False), first=("zero",), special=("<|endoftext|>",))
    write_posts(tmp_path)
    other = write_tokens(tmp_path / "other", special=("[PAD]",))
    for tokens, variant in ((other, "lora"), (base, "none")):
        options = TokenizationOptions(tokens=tokens, words=6)
        data = Blog(root=str(tmp_path), users=UserFilter(fewest=1), text=options, clients_per_round=1.0)
        module = Pretrained(path=str(base), adapter=AdapterOptions(variant=variant))  # type: ignore[arg-type]
        with pytest.raises(InputError, match=r"--data\.text\.tokens the folder of --model\.path, and train adapters"):
            quiet_trainer(1, tmp_path).fit(module, datamodule=data)


def test_texts_longer_than_the_network_are_refused(tmp_path: Path) -> None:
    base = folder_of(tmp_path / "base", weights=False, max_position_embeddings=4)
    data = SyntheticPosts(writers=6, posts=8, vocabulary=WORDS, length=8, clients_per_round=0.5)
    with pytest.raises(InputError, match=r"at most 4 tokens.*data\.text\.words"):
        quiet_trainer(1, tmp_path).fit(Pretrained(path=str(base)), datamodule=data)


def test_a_secure_sum_has_the_words_of_all_its_clients(tmp_path: Path) -> None:
    module = Pretrained(path=str(folder_of(tmp_path / "base", weights=False)))
    tokens = torch.tensor([[[5, 6, 0]], [[7, 5, 8]]])
    each = module.message_truth(TrainingExamples(tokens, None, torch.ones(2, 1, dtype=torch.bool)))
    assert each["words"].tolist() == [[5, 6, 0], [5, 7, 8]]
    assert each["read_words"].tolist() == [[5, 0], [5, 7]]
    joined = TrainingExamples(tokens, None, torch.ones(2, 1, dtype=torch.bool)).joined(torch.tensor([[0, 1]]))
    assert module.message_truth(joined)["words"].tolist() == [[5, 6, 7, 8]]


@pytest.mark.parametrize("path", ["nowhere", "config.json"])
def test_a_folder_without_a_configuration_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(InputError, match=r"config\.json of a network"):
        Pretrained(path=str(tmp_path / path))


def test_examples_that_the_network_does_not_take_are_refused(tmp_path: Path) -> None:
    small = Pretrained(path=str(folder_of(tmp_path / "base", weights=False, vocab_size=20)))
    posts = SyntheticPosts(writers=6, posts=8, vocabulary=WORDS, length=8)
    with pytest.raises(InputError, match="token numbers below the network's 20"):
        quiet_trainer(1, tmp_path).fit(small, datamodule=posts)
    with pytest.raises(InputError, match="examples with tokens; found image"):
        quiet_trainer(1, tmp_path).fit(small, datamodule=SyntheticImages())


def test_images_and_classes_of_texts_are_learned_too(tmp_path: Path) -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "vit", **sizes, "image_size": 8, "patch_size": 4, "num_channels": 1})
    )
    data = SyntheticImages()
    cohort = data.build_cohort(0, torch.arange(2))
    shape = cohort.examples["image"].shape[2:]
    content = {
        "model_type": "vit",
        **sizes,
        "image_size": shape[1],
        "patch_size": shape[1] // 2,
        "num_channels": shape[0],
    }
    (tmp_path / "config.json").write_text(json.dumps(content))
    module = Pretrained(path=str(tmp_path / "config.json"), task="image-classification", classes=10)
    assert module.message_truth(module.examples(cohort))["class_counts"].sum(1).tolist() == cohort.counts.tolist()
    update, _ = module.client_updates(module.interact(cohort, {}), module.public_parameters())
    assert any(bool(value.any()) for value in update.deltas.values())


def test_a_table_finds_the_weights_of_its_cells(tmp_path: Path) -> None:
    base = folder_of(tmp_path / "base", weights=True)
    table = tmp_path / "words.yaml"
    table.write_text(
        f"train: {ROOT / 'configs/train/adapters_synthetic.yaml'}\nmetrics: [read-f1]\nset: {{model.path: {base}}}\n"
        "axes: {data: {synthetic-posts: {}}}\nattacks: {adapter-words: {}}\n"
    )
    assert program.main(["reproduce", str(table), "--jobs", "1", "--out", str(tmp_path / "out")]) == 0
    found = json.loads((tmp_path / "out/results.json").read_text())
    assert {row["attack"] for row in found["results"]} >= {"adapter-words"}
