"""Honest federated trainings of the site's own network on its own records, to calibrate checks of received models."""

import copy
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from fedleak.guard_checks.model_statistics import model_statistics
from fedleak_guard.declared_checks import SimulatedTrainings
from fedleak_guard.earlier_round import EarlierRound
from fedleak_guard.message import norm_of
from fedleak_guard.own_data import chosen_records
from fedleak_recorder.arrays import Array

NOT_SIMULATED = "gradient-dominance", "gradient-jump", "loss-jump", "server-step"
"""Statistics that differ between these trainings and real ones: the jumps and the server's step depend on how the other
clients' data differ, and the dominance of one record in the own gradient grows late in a training."""


def simulated_rounds(
    network: Callable[[], nn.Module], records: Array, labels: Array, simulated: SimulatedTrainings
) -> Iterator[dict[str, float]]:
    """Statistics of each round's received model at the site, of several trainings by FedAvg with SGD.

    The site's client has its own records in each training. The other clients have records drawn from them with
    replacement, so that they are more alike than those of other sites; the statistics in `NOT_SIMULATED` are left out.

    Args:
        network: makes the network, with initial weights that it draws.
        records: ``(N, ...)`` the site's records.
        labels: ``(N,)`` their classes.
        simulated: the trainings.
    """
    torch.manual_seed(simulated.seed)
    draws = np.random.default_rng(simulated.seed)
    # Bytes are pixels, which the network gets as numbers from 0 to 1.
    scale = 255 if records.dtype == np.uint8 else 1
    inputs = torch.from_numpy((records / scale).astype(np.float32))
    classes = torch.from_numpy(labels.astype(np.int64))
    own_examples = chosen_records(records, labels)
    for _ in range(simulated.trainings):
        server = network()
        earlier = None
        # By client, the places of its records; the first client is the site's own, and has all.
        clients = [torch.arange(len(inputs))]
        for _ in range(simulated.clients - 1):
            clients.append(torch.from_numpy(draws.integers(len(inputs), size=simulated.examples)))
        for _ in range(simulated.rounds):
            received = {name: value.numpy().copy() for name, value in server.state_dict().items()}
            statistics = model_statistics(received, earlier=earlier, examples=own_examples, network=network)
            yield {name: value for name, value in statistics.items() if name not in NOT_SIMULATED}
            models = [_trained(server, inputs[chosen], classes[chosen], simulated) for chosen in clients]
            earlier = EarlierRound(model=received, norm=_norm_of_update(models[0], received))
            server.load_state_dict(_mean_of(models))


def _norm_of_update(model: dict[str, Tensor], received: dict[str, Array]) -> float:
    """L2 norm of the site's own update, over its floating-point tensors."""
    update = {}
    for name, value in received.items():
        if value.dtype.kind == "f":
            update[name] = model[name].numpy() - value
    return norm_of(update)


def _mean_of(models: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of the clients' models, in double precision, in the types of the first one."""
    mean = {}
    for name, value in models[0].items():
        stacked = torch.stack([model[name].double() for model in models])
        mean[name] = stacked.mean(0).to(value.dtype)
    return mean


def _trained(server: nn.Module, inputs: Tensor, classes: Tensor, simulated: SimulatedTrainings) -> dict[str, Tensor]:
    """The model of a client that starts from the server's."""
    module = copy.deepcopy(server)
    optimizer = torch.optim.SGD(module.parameters(), lr=simulated.learning_rate)
    batch_size = simulated.batch_size or len(inputs)
    for _ in range(simulated.epochs):
        # Each pass in an order of its own.
        order = torch.randperm(len(inputs))
        for batch in torch.split(order, batch_size):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(inputs[batch]), classes[batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return dict(module.state_dict())
