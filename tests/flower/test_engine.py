"""Flower's clients, loop and averaging in this process, beside our own engine."""

import os
from pathlib import Path

import pytest
import torch

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
pytest.importorskip("flwr")

from flwr.app import Context, Message, RecordDict
from flwr.app.user_config import UserConfig

from fedleak.client.engine.local_training import train_clients
from fedleak.recordings.recording import Recording
from tests.flower.here import start
from tests.flower.simulation import client_app, read, recorded

CONFIG = Path(__file__).resolve().parents[2] / "configs/train/decaf_digits.yaml"


def test_deltas_are_those_of_our_own_engine(tmp_path: Path) -> None:
    source, module, rounds = read(CONFIG, None)
    app = client_app(CONFIG, None)

    def answer(message: Message) -> Message:
        node = message.metadata.dst_node_id
        config = UserConfig({"partition-id": node - 100})
        return app(message, Context(1, node, config, RecordDict(), UserConfig()))

    strategy, first = recorded(CONFIG, None, tmp_path)
    start(strategy, first, answer, nodes=range(100, 110), rounds=rounds)
    recording = Recording(tmp_path)
    assert recording.rounds == [1, 2]
    model = module.public_parameters()
    for number in recording.rounds:
        cohort = source.cohort(number - 1)
        own = train_clients(module.algorithm, model, {}, cohort, module.local, seed=source.seed).deltas
        (view,) = recording.views(rounds=[number])
        truth = recording.truth(view)
        order = truth["partition"].argsort()
        assert torch.equal(truth["class_counts"][order], source.class_counts())
        assert torch.equal(view.example_counts[order], cohort.counts)
        for name, value in own.items():
            torch.testing.assert_close(recording.model(number)[name], model[name], atol=1e-6, rtol=1e-5)
            torch.testing.assert_close(view.deltas[name][order], value, atol=2e-6, rtol=1e-4)
        weights = cohort.counts / cohort.counts.sum()
        model = {name: value + torch.tensordot(weights, own[name], 1) for name, value in model.items()}
    assert recording.manifest.config["strategy"] == "flwr.serverapp.strategy.fedavg.FedAvg"
    assert recording.manifest.config["settings"]["min_train_nodes"] == 10
    assert set(recording.manifest.versions) > {"flwr"}
