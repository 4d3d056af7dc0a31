"""Data sets as clients; ``from fedleak.datamodules import MovieLens`` gives any of them."""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.datamodules.devices import *  # noqa: F403
    from fedleak.datamodules.images import *  # noqa: F403
    from fedleak.datamodules.partition import *  # noqa: F403
    from fedleak.datamodules.ranking import *  # noqa: F403
    from fedleak.datamodules.recommendation import *  # noqa: F403
    from fedleak.datamodules.tables import *  # noqa: F403
    from fedleak.training.data import FederatedDataModule as FederatedDataModule
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "FederatedDataModule": "fedleak.training.data",
        },
        packages=(
            "fedleak.datamodules.devices",
            "fedleak.datamodules.images",
            "fedleak.datamodules.partition",
            "fedleak.datamodules.ranking",
            "fedleak.datamodules.recommendation",
            "fedleak.datamodules.tables",
        ),
    )
