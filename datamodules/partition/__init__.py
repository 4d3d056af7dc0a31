"""Ways to deal a data set to clients."""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.datamodules.partition.client_split import ClientSplit as ClientSplit
    from fedleak.datamodules.partition.pool import Pool as Pool
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "ClientSplit": "fedleak.datamodules.partition.client_split",
            "Pool": "fedleak.datamodules.partition.pool",
        },
    )
