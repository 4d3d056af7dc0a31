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
    inputs = torch.from_numpy((records / (255 if records.dtype == np.uint8 else 1)).astype(np.float32))
    classes = torch.from_numpy(labels.astype(np.int64))
    own_examples = chosen_records(records, labels)
    for _ in range(simulated.trainings):
        server, earlier = network(), None
        clients = [torch.arange(len(inputs))]
        for _ in range(simulated.clients - 1):
            clients.append(torch.from_numpy(draws.integers(len(inputs), size=simulated.examples)))
        for _ in range(simulated.rounds):
            received = {name: value.numpy().copy() for name, value in server.state_dict().items()}
            statistics = model_statistics(received, earlier=earlier, examples=own_examples, network=network)
            yield {name: value for name, value in statistics.items() if name not in NOT_SIMULATED}
            models = [_trained(server, inputs[chosen], classes[chosen], simulated) for chosen in clients]
            # The first client is the site's own.
            sent = {
                name: models[0][name].numpy() - value for name, value in received.items() if value.dtype.kind == "f"
            }
            earlier = EarlierRound(model=received, norm=norm_of(sent))
            mean = {name: torch.stack([model[name].double() for model in models]).mean(0) for name in received}
            server.load_state_dict({name: value.to(models[0][name].dtype) for name, value in mean.items()})


def _trained(server: nn.Module, inputs: Tensor, classes: Tensor, simulated: SimulatedTrainings) -> dict[str, Tensor]:
    """The model of a client that starts from the server's."""
    module = copy.deepcopy(server)
    optimizer = torch.optim.SGD(module.parameters(), lr=simulated.learning_rate)
    for _ in range(simulated.epochs):
        for batch in torch.split(torch.randperm(len(inputs)), simulated.batch_size or len(inputs)):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(inputs[batch]), classes[batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return dict(module.state_dict())
