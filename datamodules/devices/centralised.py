"""Everybody's examples in one place: the reference that the paper calls X-SGD (table 2)."""

import torch
from torch import Tensor

from datamodules.base import FederatedDataModule
from datamodules.cohort import Cohort
from datamodules.devices.base import OwnedDataModule


class Pooled(FederatedDataModule):
    """One client that holds what all devices hold; a round is then an epoch of ordinary training.

    Args:
        devices: whose examples they are.
    """

    def __init__(self, devices: OwnedDataModule) -> None:
        super().__init__(root=devices.root, seed=devices.seed)
        self.devices = devices

    @property
    def num_clients(self) -> int:
        """One."""
        return 1

    @property
    def fingerprint(self) -> dict[str, str]:
        """See `FederatedDataModule.fingerprint`."""
        return self.devices.fingerprint

    def build_cohort(self, round_number: int, clients: Tensor) -> Cohort:
        """See `FederatedDataModule.build_cohort`."""
        numbers = torch.cat(self.devices.client_examples())
        fields = self.devices.fields(numbers)
        examples = {name: values[None] for name, values in fields.items()}
        return Cohort(round_number, clients, examples, torch.ones(1, len(numbers), dtype=torch.bool))
