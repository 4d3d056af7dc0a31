"""Central training of the same task on the pooled data: the reference that papers call ``X-SGD``."""

import torch
from lightning import LightningModule
from torch import Tensor

from attacks.base import ITEM_EMBEDDING
from datamodules.cohort import Cohort
from modules.federated import FederatedModule
from modules.local_training import Parameters
from modules.recommendation import USER_EMBEDDING


class CentralFNCF(LightningModule):
    """Trains an FNCF model with everybody's data in one place; one Trainer step is one batch of users.

    Private vectors are ordinary parameters here, so nothing stays with a client.

    Args:
        federated: the model to train, with its task and private tables.
        learning_rate: Adam's learning rate.
    """

    def __init__(self, federated: FederatedModule, *, learning_rate: float = 0.001) -> None:
        super().__init__()
        self.federated = federated
        self.learning_rate = learning_rate
        self.users = torch.nn.Parameter(federated.private[USER_EMBEDDING].clone())

    def training_step(self, cohort: Cohort, batch_idx: int) -> Tensor:
        """Mean loss over the users of the batch, each with its own vector and the one shared model."""
        clients = len(cohort)
        parameters: Parameters = {
            name: value[cohort.rows[name].clamp(min=0)]
            if name == ITEM_EMBEDDING
            else value.expand(clients, *value.shape)
            for name, value in self.federated.named_parameters()
        }
        parameters[USER_EMBEDDING] = self.users[cohort.clients]
        losses = self.federated.task.client_losses(parameters, cohort.examples, cohort.mask)
        weights = cohort.counts / cohort.counts.sum()
        loss = (losses * weights).sum()
        self.log("train/loss", loss, prog_bar=True, batch_size=clients)
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """The federated model's own metrics, with the vectors trained here."""
        self.federated.private[USER_EMBEDDING] = self.users.detach().cpu()
        for name, metric in self.federated.update_metrics(batch).items():
            self.log(name, metric, on_epoch=True, prog_bar=True, batch_size=len(batch["clients"]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam over everything."""
        return torch.optim.Adam(self.parameters(), lr=self.learning_rate)
