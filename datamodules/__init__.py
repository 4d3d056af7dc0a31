"""Data sets as clients; ``from datamodules import MovieLens`` gives any of them."""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

if TYPE_CHECKING:
    from fedleak.datamodules.devices import *  # noqa: F403
    from fedleak.datamodules.images import *  # noqa: F403
    from fedleak.datamodules.partition import *  # noqa: F403
    from fedleak.datamodules.ranking import *  # noqa: F403
    from fedleak.datamodules.recommendation import *  # noqa: F403
    from fedleak.datamodules.tables import *  # noqa: F403
    from fedleak.training.data import FederatedDataModule as FederatedDataModule

__all__ = exports(__name__)
