"""Local training of many clients."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from client.engine.local_hyperparameters import LocalTraining as LocalTraining
    from client.engine.local_training import train_clients as train_clients
    from client.engine.task import StackedTask as StackedTask
    from client.engine.task import Task as Task

__all__ = exports(__name__)
