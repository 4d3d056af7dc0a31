"""Flower strategies that record what the server receives, so that every attack of fedleak runs on a Flower training.

Wrap the strategy and train as before. `RecordingStrategy` wraps a message-based strategy
(``flwr.serverapp.strategy``), `RecordingLegacyStrategy` a strategy of parameter lists (``flwr.server.strategy``). All
decisions are left to the wrapped strategy; replies are recorded as received.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.common import FitRes, Parameters, parameters_to_ndarrays
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy as LegacyStrategy
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedleak_recorder.arrays import Array
from fedleak_recorder.described_model import Arrays
from fedleak_recorder.errors import InputError, require
from fedleak_recorder.frameworks.flower import (
    arrays_in,
    beside_arrays,
    client_of,
    metric,
    metrics_in,
    numbers,
    origin_of,
    sender_of,
    trained_model,
)
from fedleak_recorder.recorder import Recorder
from fedleak_recorder.sent import Sent
from fedleak_recorder.tree_recorder import TreeRecorder


class RecordingStrategy(Strategy):
    """Message-based strategy that is recorded.

    With a `fedleak_recorder.TreeRecorder`, messages are trees, as of ``FedXgbBagging`` and ``FedXgbCyclic``.

    Args:
        strategy: wrapped strategy.
        recorder: the recording; without ``parameters`` it takes those of the first global model.
        truth: names of client metrics that are ground truth for evaluations only, e.g. ``class_counts``; clients of a
            real deployment do not send them.
        examples_key: metric with a client's number of examples.

    Raises:
        InputError: while training, a client's parameters differ from the description in name, order or shape.
    """

    def __init__(
        self, strategy: Strategy, recorder: Recorder, *, truth: Sequence[str] = (), examples_key: str = "num-examples"
    ) -> None:
        if type(strategy).start is not Strategy.start:
            raise InputError(
                expected="a strategy that does not override Flower's loop over the rounds",
                found=f"{type(strategy).__name__} with a loop of its own",
                way_out="Use a strategy that only overrides configure_train and aggregate_train.",
            )
        self.strategy = strategy
        self.recorder = recorder
        self.truth = tuple(truth)
        self.examples_key = examples_key
        self._model: Arrays = {}

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Any:
        """Keeps the global model at the start of the round."""
        # The first description counts: those of later rounds come too late and change nothing.
        self.recorder.add_origin(*origin_of(self.strategy, dict(config)))
        self._model = self._arrays(arrays)
        return self.strategy.configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        """Records the replies before aggregation."""
        received = list(replies)
        sent = [self._sent(message) for message in received if message.has_content()]
        self.recorder.record(server_round, self._model, sent)
        return self.strategy.aggregate_train(server_round, received)

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Any:
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> Any:
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        self.strategy.summary()

    def _sent(self, message: Message) -> Sent:
        client = sender_of(message)
        metrics = metrics_in(message)
        where = f"the reply of node {client}"
        return Sent(
            client=client,
            examples=metric(metrics, self.examples_key, where),
            arrays=self._arrays(trained_model(message)),
            truth={name: numbers(metric(metrics, name, where)) for name in self.truth},
            where=where,
            beside=beside_arrays(message, self.truth),
        )

    def _arrays(self, record: ArrayRecord) -> Arrays:
        """Arrays by name; the names of a record made from a list are numbers, then a list."""
        arrays = arrays_in(record)
        if isinstance(self.recorder, TreeRecorder):
            return arrays
        names = list(arrays)
        numbers_as_names = [str(position) for position in range(len(arrays))]
        # A model whose own parameters have these names is no list.
        if names == numbers_as_names and names != list(self.recorder.parameters):
            return list(arrays.values())
        return arrays


class RecordingLegacyStrategy(LegacyStrategy):
    """Strategy of parameter lists that is recorded; parameters are identified by position and shape.

    With a `fedleak_recorder.TreeRecorder`, messages are trees, as of ``FedXgbBagging`` and ``FedXgbCyclic``.

    Args:
        strategy: wrapped strategy.
        recorder: the recording, with ``parameters``.
        truth: see `RecordingStrategy`; single numbers, or lists as JSON text.
    """

    def __init__(self, strategy: LegacyStrategy, recorder: Recorder, *, truth: Sequence[str] = ()) -> None:
        self.strategy = strategy
        self.recorder = recorder
        self.truth = tuple(truth)
        self._model: list[Array] | bytes = []

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters | None:
        return self.strategy.initialize_parameters(client_manager)

    def configure_fit(self, server_round: int, parameters: Parameters, client_manager: ClientManager) -> Any:
        """Keeps the global model at the start of the round."""
        instructions = self.strategy.configure_fit(server_round, parameters, client_manager)
        # All clients of a round get one configuration; that of the first one describes the training.
        config = {}
        if instructions:
            _, first_task = instructions[0]
            config = first_task.config
        self.recorder.add_origin(*origin_of(self.strategy, config))
        self._model = self._contents(parameters)
        return instructions

    def aggregate_fit(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> Any:
        """Records the results before aggregation."""
        self.recorder.record(server_round, self._model, [self._sent(*result) for result in results])
        return self.strategy.aggregate_fit(server_round, results, failures)

    def configure_evaluate(self, server_round: int, parameters: Parameters, client_manager: ClientManager) -> Any:
        return self.strategy.configure_evaluate(server_round, parameters, client_manager)

    def aggregate_evaluate(self, server_round: int, results: Any, failures: Any) -> Any:
        return self.strategy.aggregate_evaluate(server_round, results, failures)

    def evaluate(self, server_round: int, parameters: Parameters) -> Any:
        return self.strategy.evaluate(server_round, parameters)

    def _sent(self, proxy: ClientProxy, result: FitRes) -> Sent:
        client = client_of(proxy)
        where = f"the result of client {client}"
        return Sent(
            client=client,
            examples=result.num_examples,
            arrays=self._contents(result.parameters),
            truth={name: numbers(metric(result.metrics, name, where)) for name in self.truth},
            where=where,
            beside={"metrics": {name: value for name, value in result.metrics.items() if name not in self.truth}},
        )

    def _contents(self, parameters: Parameters) -> list[Array] | bytes:
        """Arrays, or the bytes of a model of XGBoost, which Flower sends as they are."""
        if not isinstance(self.recorder, TreeRecorder):
            arrays: list[Array] = parameters_to_ndarrays(parameters)
            return arrays
        require(
            len(parameters.tensors) <= 1,
            "one model of XGBoost as bytes",
            f"{len(parameters.tensors)} texts",
            "Record arrays with Recorder.",
        )
        # One model, which takes no list: the trees of several would be appended.
        content: bytes = b"".join(parameters.tensors)
        return content
