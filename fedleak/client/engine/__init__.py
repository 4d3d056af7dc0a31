"""Local training of many clients."""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.client.engine.local_hyperparameters import LocalTraining as LocalTraining
    from fedleak.client.engine.local_training import train_clients as train_clients
    from fedleak.client.engine.task import StackedTask as StackedTask
    from fedleak.client.engine.task import Task as Task
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "LocalTraining": "fedleak.client.engine.local_hyperparameters",
            "train_clients": "fedleak.client.engine.local_training",
            "StackedTask": "fedleak.client.engine.task",
            "Task": "fedleak.client.engine.task",
        },
    )
