"""Honest federated trainings of the site's own network on its own records, to calibrate checks of received models."""

import copy
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fedleak_guard.earlier_round import EarlierRound
from fedleak_guard.message import norm_of
from fedleak_guard.model_statistics import chosen_records, model_statistics
from fedleak_recorder.arrays import Array

NOT_SIMULATED = "gradient-dominance", "gradient-jump", "loss-jump", "server-step"
"""Statistics that differ between these trainings and real ones: the jumps and the server's step depend on how the other
clients' data differ, and the dominance of one record in the own gradient grows late in a training."""


def simulated_rounds(
    network: Callable[[], Any],
    records: Array,
    labels: Array,
    *,
    trainings: int,
    rounds: int,
    clients: int,
    examples: int,
    learning_rate: float,
    epochs: int,
    batch_size: int | None,
    seed: int = 0,
) -> Iterator[dict[str, float]]:
    """Statistics of each round's received model at the site, of several trainings by FedAvg with SGD.

    The site's client has its own records in each training. The other clients have records drawn from them with
    replacement, so that they are more alike than those of other sites; the statistics in `NOT_SIMULATED` are left out.

    Args:
        network: makes the network, with initial weights that it draws.
        records: ``(N, ...)`` the site's records.
        labels: ``(N,)`` their classes.
        trainings: number of trainings, each from an initialisation of its own.
        rounds: rounds of each.
        clients: clients of each round.
        examples: records of each other client.
        learning_rate: of the clients' SGD.
        epochs: passes over a client's records in a round.
        batch_size: records of a step; None for all.
        seed: of the draws.
    """
    torch = importlib.import_module("torch")
    torch.manual_seed(seed)
    draws = np.random.default_rng(seed)
    inputs = torch.from_numpy((records / (255 if records.dtype == np.uint8 else 1)).astype(np.float32))
    classes = torch.from_numpy(labels.astype(np.int64))
    own_examples = chosen_records(records, labels)

    def trained(server: Any, chosen: Any) -> Any:
        module = copy.deepcopy(server)
        optimizer = torch.optim.SGD(module.parameters(), lr=learning_rate)
        for _ in range(epochs):
            for part in chosen[torch.randperm(len(chosen))].split(batch_size or len(chosen)):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(module(inputs[part]), classes[part]).backward()
                optimizer.step()
        return module

    for _ in range(trainings):
        server, earlier = network(), None
        parts = [torch.arange(len(inputs))]
        parts += [torch.from_numpy(draws.integers(len(inputs), size=examples)) for _ in range(clients - 1)]
        for _ in range(rounds):
            received = {name: value.numpy().copy() for name, value in server.state_dict().items()}
            found = model_statistics(received, earlier=earlier, examples=own_examples, network=network)
            yield {name: value for name, value in found.items() if name not in NOT_SIMULATED}
            models = [dict(trained(server, part).state_dict()) for part in parts]
            sent = {
                name: models[0][name].numpy() - value for name, value in received.items() if value.dtype.kind == "f"
            }
            earlier = EarlierRound(model=received, norm=norm_of(sent))
            mean = {name: torch.stack([one[name].double() for one in models]).mean(0) for name in received}
            server.load_state_dict({name: value.to(models[0][name].dtype) for name, value in mean.items()})
