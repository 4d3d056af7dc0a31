"""Learners, local training and server behaviour, e.g. ``from fedleak.modules import FNCF``."""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.client.engine import *  # noqa: F403
    from fedleak.modules.learners import *  # noqa: F403
    from fedleak.modules.references import *  # noqa: F403
    from fedleak.training.federated import FederatedModule as FederatedModule
    from fedleak.training.lightning.built_from_data import BuiltFromData as BuiltFromData
    from fedleak.training.server_optimizer import ServerOptimizer as ServerOptimizer
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "FederatedModule": "fedleak.training.federated",
            "BuiltFromData": "fedleak.training.lightning.built_from_data",
            "ServerOptimizer": "fedleak.training.server_optimizer",
        },
        packages=(
            "fedleak.client.engine",
            "fedleak.modules.learners",
            "fedleak.modules.references",
        ),
    )
