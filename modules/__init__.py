"""Learners, local training and server behaviour, e.g. ``from modules import FNCF``."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from client.engine import *  # noqa: F403
    from modules.federated import FederatedModule as FederatedModule
    from modules.learners import *  # noqa: F403
    from modules.lightning.built_from_data import BuiltFromData as BuiltFromData
    from modules.references import *  # noqa: F403
    from modules.server import ServerOptimizer as ServerOptimizer

__all__ = exports(__name__)
