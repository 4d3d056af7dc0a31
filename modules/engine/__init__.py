"""Local training of many clients."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from modules.engine.local_hyperparameters import LocalTraining as LocalTraining
    from modules.engine.local_training import train_clients as train_clients
    from modules.engine.network_task import NetworkTask as NetworkTask
    from modules.engine.task import StackedTask as StackedTask
    from modules.engine.task import Task as Task

__all__ = exports(__name__)
