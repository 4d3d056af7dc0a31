"""Central training of the same task on the pooled data: the reference that papers call ``X-SGD``."""

import torch
from torch import Tensor

from datamodules.cohort import Cohort
from modules.built_from_data import BuiltFromData
from modules.engine.tasks import Parameters
from modules.learners.fncf import FNCF
from modules.learners.fncf_task import USER_EMBEDDING
from protocol.view import ITEM_EMBEDDING
from ranges import PositiveInt


class CentralFNCF(BuiltFromData):
    """Trains an FNCF model with everybody's data in one place; one Trainer step is one batch of users.

    Private vectors are ordinary parameters here, so nothing stays with a client.

    Args:
        num_items: see `FNCF`.
        num_clients: see `FNCF`.
        user_dim: see `FNCF`.
        item_dim: see `FNCF`.
        hidden: see `FNCF`.
        learning_rate: Adam's learning rate.
        top_k: see `FNCF`.
        seed: see `FNCF`.
    """

    def __init__(
        self,
        *,
        num_items: int | None = None,
        num_clients: int | None = None,
        user_dim: PositiveInt = 64,
        item_dim: PositiveInt = 64,
        hidden: tuple[PositiveInt, ...] = (128, 64, 32),
        learning_rate: float = 0.001,
        top_k: PositiveInt = 10,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.learning_rate = learning_rate
        self.federated = FNCF(user_dim=user_dim, item_dim=item_dim, hidden=hidden, top_k=top_k, seed=seed)
        self.build_with(num_items=num_items, num_clients=num_clients)

    def build(self, num_items: int, num_clients: int) -> None:
        """The model of `FNCF`, and the users' vectors as parameters of it."""
        self.federated.build_with(num_items=num_items, num_clients=num_clients)
        self.users = torch.nn.Parameter(self.federated.private[USER_EMBEDDING].clone())

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
