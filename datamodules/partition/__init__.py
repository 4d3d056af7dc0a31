"""Ways to deal a data set to clients."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from datamodules.partition.client_split import ClientSplit as ClientSplit
    from datamodules.partition.pool import Pool as Pool

__all__ = exports(__name__)
