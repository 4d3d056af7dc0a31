"""Flower strategies that read the verdict of an audit before each round, and log it, drop clients or end the training.

Wrap a strategy that is recorded: `VerdictStrategy` a `RecordingStrategy`, `VerdictLegacyStrategy` a
`RecordingLegacyStrategy`. ``fedleak watch`` audits the recording in a process of its own.
"""

from collections.abc import Iterable
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.common import Parameters
from flwr.server.client_manager import ClientManager
from flwr.server.strategy import Strategy as LegacyStrategy
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedleak_recorder.flower import RecordingLegacyStrategy, RecordingStrategy
from fedleak_recorder.frameworks.flower import client_of, receiver_of
from fedleak_recorder.recorder import Recorder
from fedleak_recorder.verdict import Decision, LimitExceededError, VerdictFile, remaining


class VerdictStrategy(Strategy):
    """Message-based strategy that asks for a verdict before each round.

    A training that is ended closes its recording, and `start` raises `LimitExceededError`: no client gets the task of
    the round. Clients that are dropped get neither tasks of training nor of evaluation.

    Args:
        strategy: the recorded strategy.
        verdict: the file, and what a verdict does.
    """

    def __init__(self, strategy: RecordingStrategy, verdict: VerdictFile) -> None:
        self.strategy = strategy
        self.verdict = verdict
        self._decision = Decision()

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Any:
        """The tasks of the clients that take part.

        Raises:
            LimitExceededError: the training ends here.
        """
        self._decision = _decided(self.verdict, server_round, self.strategy.recorder)
        return self._of_remaining(self.strategy.configure_train(server_round, arrays, config, grid))

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        return self.strategy.aggregate_train(server_round, replies)

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Any:
        return self._of_remaining(self.strategy.configure_evaluate(server_round, arrays, config, grid))

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> Any:
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        self.strategy.summary()

    def _of_remaining(self, messages: Iterable[Message]) -> list[Message]:
        """The messages to the clients that still take part."""
        all_messages = list(messages)
        receivers = [receiver_of(message) for message in all_messages]
        taking_part = _remaining(receivers, self._decision, self.strategy.recorder)
        return [message for message in all_messages if receiver_of(message) in taking_part]


class VerdictLegacyStrategy(LegacyStrategy):
    """Strategy of parameter lists that asks for a verdict before each round; see `VerdictStrategy`."""

    def __init__(self, strategy: RecordingLegacyStrategy, verdict: VerdictFile) -> None:
        self.strategy = strategy
        self.verdict = verdict
        self._decision = Decision()

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters | None:
        return self.strategy.initialize_parameters(client_manager)

    def configure_fit(self, server_round: int, parameters: Parameters, client_manager: ClientManager) -> Any:
        """The tasks of the clients that take part.

        Raises:
            LimitExceededError: the training ends here.
        """
        self._decision = _decided(self.verdict, server_round, self.strategy.recorder)
        return self._of_remaining(self.strategy.configure_fit(server_round, parameters, client_manager))

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        return self.strategy.aggregate_fit(server_round, results, failures)

    def configure_evaluate(self, server_round: int, parameters: Parameters, client_manager: ClientManager) -> Any:
        return self._of_remaining(self.strategy.configure_evaluate(server_round, parameters, client_manager))

    def aggregate_evaluate(self, server_round: int, results: Any, failures: Any) -> Any:
        return self.strategy.aggregate_evaluate(server_round, results, failures)

    def evaluate(self, server_round: int, parameters: Parameters) -> Any:
        return self.strategy.evaluate(server_round, parameters)

    def _of_remaining(self, instructions: list[Any]) -> list[Any]:
        """The instructions to the clients that still take part."""
        names = [client_of(proxy) for proxy, _ in instructions]
        taking_part = _remaining(names, self._decision, self.strategy.recorder)
        return [instruction for instruction in instructions if client_of(instruction[0]) in taking_part]


def _decided(verdict: VerdictFile, server_round: int, recorder: Recorder) -> Decision:
    """The decision before a round.

    Raises:
        LimitExceededError: the training ends here.
    """
    decision = verdict.before(server_round, recorder.key)
    if decision.stop:
        # No round is missing: the recording is closed as after the last one.
        recorder.close()
        raise LimitExceededError(decision.reason)
    return decision


def _remaining(names: list[str], decision: Decision, recorder: Recorder) -> set[str]:
    try:
        return set(remaining(names, decision, recorder.key))
    except LimitExceededError:
        recorder.close()
        raise
