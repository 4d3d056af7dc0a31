"""Data sets as clients; ``from datamodules import MovieLens`` gives any of them."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from datamodules.base import FederatedDataModule as FederatedDataModule
    from datamodules.devices import *  # noqa: F403
    from datamodules.images import *  # noqa: F403
    from datamodules.partition import *  # noqa: F403
    from datamodules.ranking import *  # noqa: F403
    from datamodules.recommendation import *  # noqa: F403
    from datamodules.tables import *  # noqa: F403

__all__ = exports(__name__)
