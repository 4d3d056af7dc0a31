"""Tables of the clients' private parameters, of which each rank keeps the rows of the clients that it trains."""

import torch
from lightning import Trainer
from torch import Tensor


def gathered_table(trainer: Trainer, table: Tensor, *, device: torch.device) -> Tensor:
    """The table ``(clients, ...)`` with the rows of all ranks, on the CPU; every rank must call this.

    Args:
        trainer: the trainer, for rank and number of ranks.
        table: this rank's table, whose rows of other ranks' clients are out of date.
        device: device on which ranks exchange tensors.
    """
    world = trainer.world_size
    if world == 1:
        return table.clone()
    # A client is trained by the rank of its number, see `Cohort.share`; the sum over ranks has all rows.
    own_clients = torch.arange(table.shape[0]) % world == trainer.global_rank
    own_rows = (table * own_clients.reshape(-1, *[1] * (table.dim() - 1))).to(device)
    torch.distributed.all_reduce(own_rows)
    return own_rows.cpu()
