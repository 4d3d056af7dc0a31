"""Flower without its transport: nodes that answer in this process."""

from collections.abc import Callable, Iterable

from flwr.app import ArrayRecord, Message
from flwr.serverapp.strategy import Strategy
from flwr.supercore.task_identity import TaskIdentity

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
    # A server app gets these from its runtime.
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    strategy.start(grid=Here(answer, nodes), initial_arrays=first, num_rounds=rounds)
