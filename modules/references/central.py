"""Centralised training on the pooled data, the reference that papers call ``X-SGD``."""

import torch
from torch import Tensor

from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.recommendation import USER_EMBEDDING
from fedleak.core.ranges import PositiveInt
from fedleak.core.view import ITEM_EMBEDDING
from fedleak.modules.learners.fncf import FNCF
from fedleak.training.lightning.built_from_data import BuiltFromData


class CentralFNCF(BuiltFromData):
    """Centralised training of `FNCF`; one Trainer step is one batch of users, and user vectors are ordinary parameters.

    Args:
        learning_rate: Adam's learning rate; the other arguments are those of `FNCF`.
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
        """Model of `FNCF`, with the user vectors as parameters."""
        self.federated.build_with(num_items=num_items, num_clients=num_clients)
        self.users = torch.nn.Parameter(self.federated.private[USER_EMBEDDING].clone())

    def training_step(self, cohort: Cohort, batch_idx: int) -> Tensor:
        """Mean loss of a batch of users, weighted by their numbers of examples."""
        clients = len(cohort)
        parameters: Parameters = {}
        for name, value in self.federated.named_parameters():
            if name == ITEM_EMBEDDING:
                parameters[name] = value[cohort.rows[name].clamp(min=0)]
            else:
                parameters[name] = value.expand(clients, *value.shape)
        parameters[USER_EMBEDDING] = self.users[cohort.clients]
        losses = self.federated.algorithm.stacked_loss(parameters, cohort.examples, cohort.mask)
        # Users with more examples count more, as if all examples were in one batch.
        weights = cohort.counts / cohort.counts.sum()
        loss = (losses * weights).sum()
        self.log("train/loss", loss, prog_bar=True, batch_size=clients)
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """Logs the metrics of `FNCF` with the trained user vectors."""
        self.federated.private[USER_EMBEDDING] = self.users.detach().cpu()
        for name, metric in self.federated.update_metrics(batch).items():
            self.log(name, metric, on_epoch=True, prog_bar=True, batch_size=len(batch["clients"]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam over all parameters."""
        return torch.optim.Adam(self.parameters(), lr=self.learning_rate)
