"""Flower's strategies for XGBoost, recorded: models travel as bytes, in arrays or in lists of parameters."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
pytest.importorskip("flwr")

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.common import Code, FitRes, Parameters, Status
from flwr.server.strategy import FedXgbBagging as LegacyFedXgbBagging
from flwr.serverapp.strategy import FedXgbBagging, FedXgbCyclic

from fedleak.client.tree_layout import tree_count
from fedleak.recordings.recording import Recording
from fedleak_recorder import TreeRecorder
from fedleak_recorder.flower import RecordingLegacyStrategy, RecordingStrategy
from tests.flower.here import start
from tests.tree_toys import model_values

PARAMETERS = {"objective": "binary:logistic", "max_depth": 2}


def recorder(folder: Path, **options: Any) -> TreeRecorder:
    return TreeRecorder(folder, PARAMETERS, features=5, rounds=3, clients_per_round=2, **options)


def bagging(message: Message) -> bytes:
    """A client of bagging sends one new tree."""
    seed = int(message.metadata.dst_node_id) + 10 * int(message.content["config"]["server-round"])
    return json.dumps(model_values((2,), seed=seed)).encode()


def cyclic(message: Message) -> bytes:
    """A cyclic client sends the whole model, with a tree of its own at the end."""
    given = message.content["arrays"]["0"].numpy().tobytes()
    own = json.loads(bagging(message))
    if given:
        whole = json.loads(given)
        whole["learner"]["gradient_booster"]["model"]["trees"] += own["learner"]["gradient_booster"]["model"]["trees"]
        own = whole
    return json.dumps(own).encode()


@pytest.mark.parametrize("aggregation", ["bagging", "cyclic"])
def test_a_message_based_training(tmp_path: Path, aggregation: Any) -> None:
    train = {"bagging": bagging, "cyclic": cyclic}[aggregation]

    def answer(message: Message) -> Message:
        arrays = ArrayRecord([np.frombuffer(train(message), np.uint8)])
        return Message(
            content=RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 7})}), reply_to=message
        )

    strategies = {
        "bagging": FedXgbBagging(fraction_evaluate=0.0),
        "cyclic": FedXgbCyclic(fraction_evaluate=0.0),
    }
    strategy = RecordingStrategy(strategies[aggregation], recorder(tmp_path, aggregation=aggregation))
    start(strategy, ArrayRecord([np.frombuffer(b"", np.uint8)]), answer, nodes=[1, 2], rounds=3)
    views = list(Recording(tmp_path).views())
    clients = 2 if aggregation == "bagging" else 1
    assert [view.victims for view in views] == [clients] * 3
    assert [tree_count(view.model["trees"]) for view in views] == [0, clients, 2 * clients]
    assert all(tree_count(trees) == 1 for view in views for trees in view.deltas["trees"])


def test_a_strategy_of_parameter_lists(tmp_path: Path) -> None:
    class Proxy:
        def __init__(self, cid: str) -> None:
            self.cid = cid

    strategy = RecordingLegacyStrategy(LegacyFedXgbBagging(), recorder(tmp_path))
    strategy._model = strategy._contents(Parameters(tensor_type="", tensors=[]))
    results = []
    for number in (1, 2):
        tree = json.dumps(model_values((2,), seed=number)).encode()
        sent = Parameters(tensor_type="", tensors=[tree])
        results.append((Proxy(str(number)), FitRes(Status(Code.OK, ""), sent, 7, {})))
    strategy.aggregate_fit(1, results, [])
    (view,) = Recording(tmp_path).views()
    assert view.deltas["trees"].shape == (2, 1, 7, 8)
