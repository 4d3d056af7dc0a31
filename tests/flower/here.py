"""Flower without its transport: nodes that answer in this process."""

from collections.abc import Callable, Iterable
from typing import Self

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

    @classmethod
    def in_a_run(cls, answer: Answer, nodes: Iterable[int]) -> Self:
        """A grid with what a server app gets from its runtime."""
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
        return cls(answer, nodes)


def start(strategy: Strategy, first: ArrayRecord, answer: Answer, *, nodes: Iterable[int], rounds: int) -> None:
    strategy.start(grid=Here.in_a_run(answer, nodes), initial_arrays=first, num_rounds=rounds)
