"""Local training of many clients."""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

if TYPE_CHECKING:
    from fedleak.client.engine.local_hyperparameters import LocalTraining as LocalTraining
    from fedleak.client.engine.local_training import train_clients as train_clients
    from fedleak.client.engine.task import StackedTask as StackedTask
    from fedleak.client.engine.task import Task as Task

__all__ = exports(__name__)
