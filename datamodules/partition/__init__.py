"""Ways to deal a data set to clients."""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

if TYPE_CHECKING:
    from fedleak.datamodules.partition.client_split import ClientSplit as ClientSplit
    from fedleak.datamodules.partition.pool import Pool as Pool

__all__ = exports(__name__)
