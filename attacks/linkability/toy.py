"""Clients who send an update in each of some rounds, each near the client's own mean."""

import torch
from torch import Tensor

from fedleak.core.history import History
from fedleak.core.seeding import generator_for

CLIENTS, ROUNDS, PARAMETERS = 20, 3, 40


def toy() -> tuple[History, dict[str, Tensor]]:
    """Messages in random order within their rounds, and the ``clients (V,)`` who sent them."""
    generator = generator_for(0, "linkability toy")
    order = [torch.randperm(CLIENTS, generator=generator) for _ in range(ROUNDS)]
    sender = torch.cat(order)
    means = torch.randn(CLIENTS, PARAMETERS, generator=generator)
    noise = torch.randn(len(sender), PARAMETERS, generator=generator)
    view = History(
        round=ROUNDS - 1,
        pseudonyms=torch.arange(len(sender)),
        example_counts=torch.ones(len(sender), dtype=torch.int64),
        deltas={"weight": means[sender] + noise},
        model={"weight": torch.zeros(PARAMETERS)},
        sent_in=torch.arange(ROUNDS).repeat_interleave(CLIENTS),
    )
    return view, {"clients": sender}
