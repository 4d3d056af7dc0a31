"""The recording strategies with Flower's own types, strategies, clients and loop; only the transport is left out."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
pytest.importorskip("flwr")

from flwr.app import ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.app.user_config import UserConfig
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters
from flwr.server.strategy import FedAvg as LegacyFedAvg
from flwr.serverapp.strategy import FedAvg, Strategy

from callbacks.flower_recorder import RecordingLegacyStrategy, RecordingStrategy
from datamodules.deltas import Recording
from datamodules.recording_writer import System
from errors import InputError
from modules.local_training import train_clients
from tests.flower.simulation import client_app, read, recorded

CONFIG = Path(__file__).resolve().parents[2] / "configs/train/decaf_digits.yaml"
SHAPES = {"layer.weight": (2, 3), "layer.bias": (2,)}
Answer = Callable[[Message], Message]


class Here:
    """A grid of nodes that answer in this process."""

    def __init__(self, answer: Answer, nodes: Iterable[int]) -> None:
        self.answer, self.nodes = answer, list(nodes)

    def get_node_ids(self) -> list[int]:
        return self.nodes

    def send_and_receive(self, messages: Iterable[Message], timeout: float | None = None) -> list[Message]:
        return [self.answer(message) for message in messages]


def start(strategy: Strategy, first: ArrayRecord, answer: Answer, *, nodes: Iterable[int], rounds: int) -> None:
    strategy.start(grid=Here(answer, nodes), initial_arrays=first, num_rounds=rounds)  # type: ignore[arg-type]


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
        own = train_clients(module.task, model, {}, cohort, module.local, seed=source.seed).deltas
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


def reply(arrays: Any, metrics: dict[str, Any] | None = None) -> Answer:
    """Clients that all send the same."""
    told = MetricRecord({"num-examples": 3} if metrics is None else metrics)

    def answer(message: Message) -> Message:
        return Message(content=RecordDict({"arrays": ArrayRecord(arrays), "metrics": told}), reply_to=message)

    return answer


def small() -> dict[str, torch.Tensor]:
    return {name: torch.ones(shape) for name, shape in SHAPES.items()}


def strategy_of(folder: Path, strategy: Strategy | None = None, **options: Any) -> RecordingStrategy:
    system = System(parameters=SHAPES, data={"name": "toy"})
    chosen = strategy or FedAvg(fraction_evaluate=0.0)
    return RecordingStrategy(chosen, directory=folder, system=system, **options)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (reply(dict(reversed(small().items()))), ["'layer.weight' of shape (2, 3)", "another order"]),
        (reply({**small(), "layer.weight": torch.ones(2, 4)}), ["(2, 3)", "(2, 4)", "another model"]),
        (reply({"other": torch.ones(2, 3), "layer.bias": torch.ones(2)}), ["'layer.weight'", "'other'"]),
        (reply({**small(), "more": torch.ones(1)}), ["nothing", "'more' of shape (1,)"]),
        (reply([np.ones(2), np.ones((2, 3))]), ["'layer.weight' of shape (2, 3)", "of shape (2,)"]),
        (reply([np.ones((2, 3))]), ["2 arrays", "1 in the reply of node"]),
        (reply({**small(), "layer.bias": torch.tensor([1.0, torch.nan])}), ["finite", "'layer.bias'"]),
        (reply(small(), {"examples": 3}), ["the metric 'num-examples'", "examples in"]),
    ],
)
def test_a_client_of_another_model_ends_the_training(tmp_path: Path, answer: Answer, told: list[str]) -> None:
    with pytest.raises(InputError) as refused:
        start(strategy_of(tmp_path), ArrayRecord(small()), answer, nodes=[1, 2], rounds=1)
    assert all(part in str(refused.value) for part in told)


def test_clients_that_fail_are_left_out_and_lists_get_their_names(tmp_path: Path) -> None:
    def answer(message: Message) -> Message:
        if message.metadata.dst_node_id == 2:
            return Message(Error(code=0, reason="gone"), reply_to=message)
        return reply([np.full((2, 3), 3.0), np.ones(2)])(message)

    start(strategy_of(tmp_path), ArrayRecord([np.ones((2, 3)), np.ones(2)]), answer, nodes=[1, 2, 3], rounds=1)
    (view,) = Recording(tmp_path).views()
    assert view.victims == 2
    assert view.deltas["layer.weight"].unique().tolist() == [2]
    assert view.deltas["layer.bias"].unique().tolist() == [0]


def test_a_folder_is_not_recorded_into_twice(tmp_path: Path) -> None:
    start(strategy_of(tmp_path), ArrayRecord(small()), reply(small()), nodes=[1, 2], rounds=1)
    with pytest.raises(InputError, match="without a recording"):
        start(strategy_of(tmp_path), ArrayRecord(small()), reply(small()), nodes=[1, 2], rounds=1)


def test_a_strategy_with_a_loop_of_its_own_is_refused(tmp_path: Path) -> None:
    class Looping(FedAvg):
        def start(self, *args: Any, **kwargs: Any) -> Any:
            return None

    with pytest.raises(InputError, match="Looping with a loop of its own"):
        strategy_of(tmp_path, Looping())


class Proxy:
    """As much of a client's proxy as a strategy looks at."""

    def __init__(self, cid: str) -> None:
        self.cid = cid


def fitted(arrays: list[np.ndarray], metrics: dict[str, Any]) -> FitRes:
    return FitRes(Status(Code.OK, ""), ndarrays_to_parameters(arrays), 5, metrics)


class NobodySampled(LegacyFedAvg):
    def configure_fit(self, *args: Any) -> list[Any]:
        return []


def test_lists_of_parameters_are_recorded_by_place_and_shape(tmp_path: Path) -> None:
    system = System(parameters=SHAPES, data={"name": "toy"})
    strategy = RecordingLegacyStrategy(NobodySampled(), directory=tmp_path, system=system, truth=("class_counts",))
    before = ndarrays_to_parameters([np.ones((2, 3)), np.ones(2)])
    strategy.configure_fit(1, before, None)  # type: ignore[arg-type]
    good = [np.full((2, 3), 1.5), np.zeros(2)]
    results: Any = [(Proxy(name), fitted(good, {"class_counts": "[4, 1]"})) for name in ("a", "b")]
    merged, _ = strategy.aggregate_fit(1, results, [])
    assert merged is not None
    recording = Recording(tmp_path)
    (view,) = recording.views()
    assert view.deltas["layer.weight"].unique().tolist() == [0.5]
    assert view.deltas["layer.bias"].unique().tolist() == [-1]
    assert view.example_counts.tolist() == [5, 5]
    assert recording.truth(view)["class_counts"].tolist() == [[4, 1], [4, 1]]
    strategy.configure_fit(2, before, None)  # type: ignore[arg-type]
    results = [(Proxy("a"), fitted(good[::-1], {"class_counts": "[4, 1]"}))]
    with pytest.raises(InputError, match=r"'layer.weight' of shape \(2, 3\).*shape \(2,\) in the result of client a"):
        strategy.aggregate_fit(2, results, [])
