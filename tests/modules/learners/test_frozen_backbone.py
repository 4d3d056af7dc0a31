"""Transfer learning: the head alone is the global model, and a recording is read again with the same backbone."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.client.backbones import backbone
from fedleak.client.frozen_backbone import FrozenBackboneAlgorithm
from fedleak.core.errors import InputError
from fedleak.datamodules.images.synthetic_images import SyntheticImages
from fedleak.datamodules.partition.client_split import ClientSplit
from fedleak.modules.learners.frozen_backbone import FrozenBackbone
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording
from fedleak.training.candidates import CandidateOptions
from tests.toys import quiet_trainer

RESNET = {
    "model_type": "resnet",
    "num_channels": 3,
    "embedding_size": 8,
    "hidden_sizes": [8, 12],
    "depths": [1, 1],
    "layer_type": "basic",
}
BERT = {
    "model_type": "bert",
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 16,
}


def data() -> SyntheticImages:
    split = ClientSplit(scheme="iid", clients=4, examples_per_client=4)
    return SyntheticImages(split=split, train_per_class=30, auxiliary_per_class=4, seed=1)


def record(folder: Path, learner: FrozenBackbone) -> Recording:
    recorder = DeltaRecorder(keep_records=True, candidates=CandidateOptions(per_client=4))
    quiet_trainer(1, folder, recorder).fit(learner, datamodule=data())
    return Recording(folder / "deltas")


@pytest.mark.integration
def test_a_recording_has_the_head_alone_and_is_read_with_the_same_backbone(tmp_path: Path) -> None:
    learner = FrozenBackbone(backbone="drawn", hidden=8)
    recording = record(tmp_path, learner)
    names = {name.rpartition(".")[0] for name in recording.manifest.parameters}
    assert names == {"network.hidden", "network.output"}
    description = json.dumps(recording.manifest.learner)
    assert "folder" not in description
    assert str(tmp_path) not in description
    algorithm = recorded_learner(recording)
    assert isinstance(algorithm, FrozenBackboneAlgorithm)
    assert algorithm.frozen.hash == learner.algorithm.frozen.hash
    # A recording that names another backbone than the clients had is refused.
    assert recording.manifest.learner is not None
    arguments = {**recording.manifest.learner["arguments"], "base_seed": 1}
    recording.manifest = dataclasses.replace(
        recording.manifest, learner={**recording.manifest.learner, "arguments": arguments}
    )
    with pytest.raises(InputError, match="SHA-256"):
        recorded_learner(recording)


@pytest.mark.integration
def test_a_network_of_transformers_is_a_backbone_of_images(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(RESNET))
    recording = record(tmp_path, FrozenBackbone(backbone="transformers", path=str(config)))
    algorithm = recorded_learner(recording)
    assert isinstance(algorithm, FrozenBackboneAlgorithm)
    assert algorithm.frozen.width == 12


def test_padding_has_no_part_in_the_features_of_a_text() -> None:
    network = backbone("transformers", config=json.dumps(BERT))
    assert network.reads_texts
    short = network.features(torch.tensor([[3, 4, 5]]))
    padded = network.features(torch.tensor([[3, 4, 5, 0, 0]]))
    assert short.shape == (1, 16)
    assert torch.allclose(short, padded, atol=1e-6)


def test_a_backbone_without_its_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"learner\.path"):
        backbone("efficientnet-lite0")
    with pytest.raises(InputError, match="nothing at"):
        backbone("fer", file=tmp_path)
    with pytest.raises(InputError, match=r"model\.path"):
        FrozenBackbone(backbone="transformers")
    wrong = tmp_path / "efficientnet-lite0-57934424.pth"
    torch.save({"weight": torch.zeros(1)}, wrong)
    with pytest.raises(InputError, match="efficientnet"):
        backbone("efficientnet-lite0", file=tmp_path)
