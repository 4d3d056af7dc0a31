"""The round of a federated training: the base of learners and of data, the server's optimizer, Lightning's files."""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.training.data import FederatedDataModule as FederatedDataModule
    from fedleak.training.federated import FederatedModule as FederatedModule
    from fedleak.training.lightning.built_from_data import BuiltFromData as BuiltFromData
    from fedleak.training.server_optimizer import ServerOptimizer as ServerOptimizer
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "FederatedDataModule": "fedleak.training.data",
            "FederatedModule": "fedleak.training.federated",
            "BuiltFromData": "fedleak.training.lightning.built_from_data",
            "ServerOptimizer": "fedleak.training.server_optimizer",
        },
    )
