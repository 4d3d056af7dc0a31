"""Learners, local training and server behaviour, e.g. ``from modules import FNCF``."""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

if TYPE_CHECKING:
    from fedleak.client.engine import *  # noqa: F403
    from fedleak.modules.learners import *  # noqa: F403
    from fedleak.modules.references import *  # noqa: F403
    from fedleak.training.federated import FederatedModule as FederatedModule
    from fedleak.training.lightning.built_from_data import BuiltFromData as BuiltFromData
    from fedleak.training.server_optimizer import ServerOptimizer as ServerOptimizer

__all__ = exports(__name__)
