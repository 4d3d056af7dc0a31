"""The recording strategies with Flower's own types, strategies, clients and loop; only the transport is left out."""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
pytest.importorskip("flwr")

from flwr.app import ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters
from flwr.server.strategy import FedAvg as LegacyFedAvg
from flwr.serverapp.strategy import FedAvg, Strategy

from fedleak.core.errors import InputError
from fedleak.defenses.compression import TopK
from fedleak.evaluation.audit_plan import AuditPlan
from fedleak.evaluation.registry import chosen_attacks
from fedleak.evaluation.what_if import COSINE, LOSS, what_if
from fedleak.recordings.recording import Recording
from fedleak_recorder import Recorder
from fedleak_recorder.flower import RecordingLegacyStrategy, RecordingStrategy
from tests.flower.here import Answer, Here, start
from tests.places import ROOT

SHAPES = {"layer.weight": (2, 3), "layer.bias": (2,)}


def reply(arrays: Any, metrics: dict[str, Any] | None = None) -> Answer:
    """Clients that all send the same."""
    told = MetricRecord({"num-examples": 3} if metrics is None else metrics)

    def answer(message: Message) -> Message:
        return Message(content=RecordDict({"arrays": ArrayRecord(arrays), "metrics": told}), reply_to=message)

    return answer


def small() -> dict[str, torch.Tensor]:
    return {name: torch.ones(shape) for name, shape in SHAPES.items()}


def strategy_of(folder: Path, strategy: Strategy | None = None, **options: Any) -> RecordingStrategy:
    recorder = Recorder(folder, parameters=SHAPES, data="toy")
    return RecordingStrategy(strategy or FedAvg(fraction_evaluate=0.0), recorder, **options)


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
    assert bool((view.deltas["layer.weight"] == 2).all())
    assert bool((view.deltas["layer.bias"] == 0).all())


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


def test_the_example_of_the_page_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/audit/record-your-system.md").read_text(encoding="utf-8")
    (example,) = (
        one for one in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "fedleak_recorder.flower" in one
    )
    network = torch.nn.Linear(3, 2)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    told = {"num-examples": 3, "class_counts": [2, 1]}
    after = {name: value + 0.3 for name, value in before.items()}
    known: dict[str, Any] = {"network": network, "strategy": FedAvg(fraction_evaluate=0.0), "rounds": 1}
    known |= {"grid": Here.in_a_run(reply(after, told), [1, 2]), "arrays": ArrayRecord(before)}
    exec(compile(example, "record-your-system.md", "exec"), known)
    recording = Recording("runs/mine/deltas")
    assert recording.closed
    (view,) = recording.views()
    for name, value in before.items():
        assert all(torch.equal(delta, after[name] - value) for delta in view.deltas[name])
    assert recording.truth(view)["class_counts"].tolist() == [[2, 1], [2, 1]]


def test_what_if_needs_no_learner(tmp_path: Path) -> None:
    """Of a recording of another system, the audit has what defences leave of the mean update, and no loss."""

    def answer(message: Message) -> Message:
        arrays = {name: torch.randn(shape) + message.metadata.dst_node_id for name, shape in SHAPES.items()}
        return reply(arrays)(message)

    start(strategy_of(tmp_path), ArrayRecord(small()), answer, nodes=[1, 2, 3, 4, 5], rounds=2)
    plan = AuditPlan(recording=Recording(tmp_path), attacks=chosen_attacks())
    found = what_if(plan, {("top-k", 0.5): [TopK(share=0.5)]}, progress=False).results
    kept = found.set_index(["metric", "setting.defence"])["mean"]
    assert kept[COSINE, "none"] == pytest.approx(1)
    assert 0 < kept[COSINE, "top-k 0.5"] < 1
    assert LOSS not in found["metric"].unique()


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
    recorder = Recorder(tmp_path, parameters=SHAPES, data="toy")
    strategy = RecordingLegacyStrategy(NobodySampled(), recorder, truth=("class_counts",))
    before = ndarrays_to_parameters([np.ones((2, 3)), np.ones(2)])
    strategy.configure_fit(1, before, None)
    good = [np.full((2, 3), 1.5), np.zeros(2)]
    results: Any = [(Proxy(name), fitted(good, {"class_counts": "[4, 1]"})) for name in ("a", "b")]
    merged, _ = strategy.aggregate_fit(1, results, [])
    assert merged is not None
    recording = Recording(tmp_path)
    (view,) = recording.views()
    assert bool((view.deltas["layer.weight"] == 0.5).all())
    assert bool((view.deltas["layer.bias"] == -1).all())
    assert view.example_counts.tolist() == [5, 5]
    assert recording.truth(view)["class_counts"].tolist() == [[4, 1], [4, 1]]
    strategy.configure_fit(2, before, None)
    results = [(Proxy("a"), fitted(good[::-1], {"class_counts": "[4, 1]"}))]
    with pytest.raises(InputError, match=r"'layer.weight' of shape \(2, 3\).*shape \(2,\) in the result of client a"):
        strategy.aggregate_fit(2, results, [])
