"""Flower strategies that record what the server receives, so that every attack runs on a Flower training.

Wrap the strategy, train as before, then run ``python attack.py audit --deltas DIR``. `RecordingStrategy` wraps a
message-based strategy (``flwr.serverapp.strategy``), `RecordingLegacyStrategy` a strategy of parameter lists
(``flwr.server.strategy``). All decisions are left to the wrapped strategy; replies are recorded as received.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common import FitIns, FitRes, Parameters, Scalar, parameters_to_ndarrays
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy as LegacyStrategy
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from torch import Tensor

from datamodules.io.plain_values import strange_value
from datamodules.recordings.external_round import Sent
from datamodules.recordings.external_system import System
from datamodules.recordings.shape_check import Shapes, named
from datamodules.recordings.writer import RecordingWriter
from modules.learners.recorded_learner import check_learner
from protocol.errors import InputError


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that can be stored in a manifest."""
    kinds = (bool, int, float, str)
    return {
        name: value for name, value in settings.items() if isinstance(value, kinds) and strange_value(value) is None
    }


class _Recorder:
    """Writer of rounds for both interfaces.

    Args:
        directory: folder of the recording.
        system: public description of the model; the strategy and its settings are added.
        strategy: wrapped strategy.
    """

    def __init__(self, directory: str | Path, system: System, strategy: object) -> None:
        check_learner(system.learner, system.parameters, where="the description of the system")
        self.directory, self.system, self.strategy = Path(directory), system, strategy
        self._writer: RecordingWriter | None = None
        self.model: dict[str, Tensor] = {}

    def begin(self, model: dict[str, Tensor], config: Mapping[str, Any]) -> None:
        """Keeps the global model at the start of a round; the first one creates the recording."""
        self.model = model
        if self._writer is None:
            origin = {
                "system": "flower",
                "strategy": f"{type(self.strategy).__module__}.{type(self.strategy).__qualname__}",
                "settings": _plain(vars(self.strategy)),
                "config": _plain(config),
                **self.system.origin,
            }
            versions = {"flwr": version("flwr"), **self.system.versions}
            system = replace(self.system, origin=origin, versions=versions)
            self._writer = RecordingWriter(self.directory, system)
            self._writer.declare()

    def write(self, number: int, sent: Iterable[Sent], clients: int) -> None:
        """Writes the started round."""
        assert self._writer is not None
        self._writer.write(number, self.model, sent, clients)
        self._writer.close()


class RecordingStrategy(Strategy):
    """Message-based strategy that is recorded.

    Args:
        strategy: wrapped strategy.
        directory: folder of the recording; it must not contain one.
        system: the model's parameters in order, the data's name, and what else is public.
        truth: names of client metrics that are ground truth for evaluations only, e.g. ``class_counts``; clients of a
            real deployment do not send them.
        examples_key: metric with a client's number of examples.

    Raises:
        InputError: while training, a client's parameters differ from the description in name, order or shape.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        directory: str | Path,
        system: System,
        truth: Sequence[str] = (),
        examples_key: str = "num-examples",
    ) -> None:
        if type(strategy).start is not Strategy.start:
            raise InputError(
                expected="a strategy that does not override Flower's loop over the rounds",
                found=f"{type(strategy).__name__} with a loop of its own",
                way_out="Use a strategy that only overrides configure_train and aggregate_train.",
            )
        self.strategy, self.truth, self.examples_key = strategy, tuple(truth), examples_key
        self._recorder = _Recorder(directory, system, strategy)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Keeps the global model at the start of the round."""
        where = f"the global model before round {server_round}"
        self._recorder.begin(_tensors(arrays, self._recorder.system.parameters, where), dict(config))
        asked: Iterable[Message] = self.strategy.configure_train(server_round, arrays, config, grid)
        return asked

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Records the replies before aggregation."""
        received = list(replies)
        whole = [message for message in received if message.has_content()]
        self._recorder.write(server_round, (self._sent(message) for message in whole), len(whole))
        merged: tuple[ArrayRecord | None, MetricRecord | None] = self.strategy.aggregate_train(server_round, received)
        return merged

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Calls the strategy."""
        asked: Iterable[Message] = self.strategy.configure_evaluate(server_round, arrays, config, grid)
        return asked

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Calls the strategy."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        """Calls the strategy."""
        self.strategy.summary()

    def _sent(self, message: Message) -> Sent:
        node = message.metadata.src_node_id
        where = f"the reply of node {node}"
        records = list(message.content.array_records.values())
        if len(records) != 1:
            raise InputError(
                expected="one ArrayRecord with the trained model",
                found=f"{len(records)} in {where}",
                way_out="Send other values as metrics.",
            )
        metrics = {name: value for record in message.content.metric_records.values() for name, value in record.items()}
        return Sent(
            client=str(node),
            examples=int(_metric(metrics, self.examples_key, where)),
            arrays=_tensors(records[0], self._recorder.system.parameters, where),
            truth={name: _numbers(_metric(metrics, name, where)) for name in self.truth},
            where=where,
        )


class RecordingLegacyStrategy(LegacyStrategy):
    """Strategy of parameter lists that is recorded; parameters are identified by position and shape.

    Args:
        strategy: wrapped strategy.
        directory: folder of the recording; it must not contain one.
        system: see `RecordingStrategy`.
        truth: see `RecordingStrategy`; single numbers, or lists as JSON text.
    """

    def __init__(
        self, strategy: LegacyStrategy, *, directory: str | Path, system: System, truth: Sequence[str] = ()
    ) -> None:
        self.strategy, self.truth = strategy, tuple(truth)
        self._recorder = _Recorder(directory, system, strategy)

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters | None:
        """Calls the strategy."""
        return self.strategy.initialize_parameters(client_manager)

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """Keeps the global model at the start of the round."""
        instructions: list[tuple[ClientProxy, FitIns]] = self.strategy.configure_fit(
            server_round, parameters, client_manager
        )
        config = instructions[0][1].config if instructions else {}
        self._recorder.begin(self._tensors(parameters, f"the global model before round {server_round}"), config)
        return instructions

    def aggregate_fit(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Records the results before aggregation."""
        self._recorder.write(server_round, (self._sent(*result) for result in results), len(results))
        merged: tuple[Parameters | None, dict[str, Scalar]]
        merged = self.strategy.aggregate_fit(server_round, results, failures)
        return merged

    def configure_evaluate(self, server_round: int, parameters: Parameters, client_manager: ClientManager) -> Any:
        """Calls the strategy."""
        return self.strategy.configure_evaluate(server_round, parameters, client_manager)

    def aggregate_evaluate(self, server_round: int, results: Any, failures: Any) -> Any:
        """Calls the strategy."""
        return self.strategy.aggregate_evaluate(server_round, results, failures)

    def evaluate(self, server_round: int, parameters: Parameters) -> tuple[float, dict[str, Scalar]] | None:
        """Calls the strategy."""
        measured: tuple[float, dict[str, Scalar]] | None = self.strategy.evaluate(server_round, parameters)
        return measured

    def _sent(self, proxy: ClientProxy, result: FitRes) -> Sent:
        where = f"the result of client {proxy.cid}"
        return Sent(
            client=str(proxy.cid),
            examples=int(result.num_examples),
            arrays=self._tensors(result.parameters, where),
            truth={name: _numbers(_metric(result.metrics, name, where)) for name in self.truth},
            where=where,
        )

    def _tensors(self, parameters: Parameters, where: str) -> dict[str, Tensor]:
        arrays = [torch.from_numpy(array.copy()) for array in parameters_to_ndarrays(parameters)]
        return named(self._recorder.system.parameters, arrays, where=where)


def _tensors(record: ArrayRecord, expected: Shapes, where: str) -> dict[str, Tensor]:
    """Arrays by name; the names of a record made from a list are numbers."""
    arrays = {name: torch.from_numpy(array.numpy().copy()) for name, array in record.items()}
    if list(arrays) == [str(place) for place in range(len(arrays))] and list(arrays) != list(expected):
        return named(expected, list(arrays.values()), where=where)
    return arrays


def _metric(metrics: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in metrics:
        raise InputError(
            expected=f"the metric {name!r} from every client",
            found=f"{', '.join(metrics) or 'none'} in {where}",
            way_out="Return it with the trained model, or leave it out of the strategy's arguments.",
        )
    return metrics[name]


def _numbers(value: Any) -> Tensor:
    return torch.as_tensor(json.loads(value) if isinstance(value, str) else value)
