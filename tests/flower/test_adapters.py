"""A Flower app that fine-tunes a transformer by adapters: as in FlowerTune, these alone are exchanged."""

import os
from pathlib import Path

import pytest
import torch

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
pytest.importorskip("flwr")
pytest.importorskip("peft")

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.app.user_config import UserConfig
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from fedleak.recordings.recording import Recording
from fedleak_recorder import Recorder
from fedleak_recorder.flower import RecordingStrategy
from tests.adapter_clients import TEXTS, State, load, network, save_base, state_of, train, truth_of
from tests.flower.here import start
from tests.transformer_toys import f1, found_and_read

CLIENTS, ROUNDS = 3, 2
Changes = dict[tuple[int, int], State]


def client_app(base: Path, *, listed: bool, changes: Changes) -> ClientApp:
    """Clients as a stranger writes them, which also keep their own changes; adapters go by name or as a list."""
    app = ClientApp()

    @app.train()
    def fit(message: Message, context: Context) -> Message:
        client = int(context.node_config["partition-id"])
        model = network(base)
        names = list(state_of(model))
        given = [torch.from_numpy(array.numpy().copy()) for array in message.content["arrays"].values()]
        load(model, dict(zip(names, given, strict=True)))
        before = state_of(model)
        train(model, client)
        after = state_of(model)
        server_round = int(message.content["config"]["server-round"])
        changes[server_round, client] = {name: after[name] - before[name] for name in names}
        metrics = MetricRecord({"num-examples": TEXTS, "client": client, **truth_of(client)})
        arrays = ArrayRecord([value.numpy() for value in after.values()] if listed else after)
        return Message(content=RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    return app


@pytest.mark.integration
@pytest.mark.parametrize("listed", [False, True])
def test_deltas_are_the_clients_own_and_tell_their_words(tmp_path: Path, listed: bool) -> None:
    save_base(tmp_path / "base")
    changes: Changes = {}
    app = client_app(tmp_path / "base", listed=listed, changes=changes)

    def answer(message: Message) -> Message:
        node = message.metadata.dst_node_id
        config = UserConfig({"partition-id": node - 100})
        return app(message, Context(1, node, config, RecordDict(), UserConfig()))

    first = state_of(network(tmp_path / "base"))
    with Recorder(tmp_path / "deltas", parameters=first, data="texts") as recorder:
        fedavg = FedAvg(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
        strategy = RecordingStrategy(fedavg, recorder, truth=["client", "words", "read_words"])
        arrays = ArrayRecord([value.numpy() for value in first.values()] if listed else first)
        start(strategy, arrays, answer, nodes=range(100, 100 + CLIENTS), rounds=ROUNDS)
    recording = Recording(tmp_path / "deltas")
    assert recording.rounds == [1, 2]
    assert list(recording.manifest.parameters) == list(first)
    for view in recording.views():
        for place, client in enumerate(recording.truth(view)["client"].tolist()):
            own = changes.pop((view.round, client))
            assert all(torch.equal(view.deltas[name][place], value) for name, value in own.items())
    assert not changes
    pairs = found_and_read(tmp_path / "deltas", tmp_path / "base")
    assert len(pairs) == CLIENTS * ROUNDS
    assert min(f1(found, read) for found, read in pairs) > 0.9
    others = [f1(found, read) for (found, _), (_, read) in zip(pairs, [*pairs[1:], pairs[0]], strict=True)]
    assert sum(others) / len(others) < 0.2
