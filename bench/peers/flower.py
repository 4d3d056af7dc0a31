"""Flower: its simulation engine on Ray, one actor per core, with its FedAvg."""

import functools
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from bench.peers.networks import batches_of, empty_network, optimizer_of, public_of
from bench.peers.protocol import Host, Job, Weights, job_folder

FOLDER = "BENCH_JOB"
_TURN, _STATE = "turn", "state"


class Turns(FedAvg):
    """FedAvg with the job's cohorts; each round waits for a request."""

    def __init__(self, job: Job, initial: ArrayRecord) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.job, self.model = job, initial
        self.host = Host(self._weights)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Sends the model to the clients of the round; a client is always the same node."""
        if not self.host.wait():
            os._exit(0)
        nodes, number = sorted(grid.get_node_ids()), (server_round - 1) % len(self.job.cohorts)
        return [
            Message(
                content=RecordDict({"arrays": arrays, _TURN: ConfigRecord({"number": number, "place": place})}),
                message_type=MessageType.TRAIN,
                dst_node_id=nodes[client],
            )
            for place, client in enumerate(self.job.cohorts[number].tolist())
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Averages like FedAvg, and reports the end of the round."""
        arrays, metrics = super().aggregate_train(server_round, replies)
        self.model = arrays
        self.host.done()
        return arrays, metrics

    def _weights(self) -> Weights:
        return {name: value.numpy() for name, value in self.model.items()}


app = ClientApp()


@functools.cache
def _job() -> Job:
    torch.set_num_threads(1)
    return Job(Path(os.environ[FOLDER]))


@app.train()
def train(message: Message, context: Context) -> Message:
    """One client of a round; its private vector is in its node's state."""
    job, turn = _job(), message.content[_TURN]
    number, place = int(turn["number"]), int(turn["place"])
    client = int(job.cohorts[number, place])
    network: Any = empty_network(job)
    network.load_state_dict(message.content["arrays"].to_torch_state_dict(), strict=False)
    network.requires_grad_()
    own = job.plan.kind == "interactions"
    if own:
        kept = context.state.get(_STATE)
        vector = job.arrays["users"][client] if kept is None else kept["user"].numpy()
        network.user.data.copy_(torch.from_numpy(np.array(vector)))
    optimizer = optimizer_of(job, network.parameters())
    for batch in batches_of(job, number, place):
        optimizer.zero_grad()
        network.loss(*batch).backward()
        optimizer.step()
    if own:
        context.state[_STATE] = ArrayRecord({"user": Array(network.user.detach().numpy())})
    arrays = ArrayRecord({name: Array(value.detach().numpy()) for name, value in public_of(network)})
    metrics = MetricRecord({"num-examples": int(job.counts[client])})
    return Message(content=RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def main() -> None:
    """Runs rounds on request."""
    logging.disable(logging.INFO)
    folder = job_folder().resolve()
    os.environ[FOLDER] = str(folder)
    job = Job(folder)
    initial = ArrayRecord({name: Array(value) for name, value in job.weights.items()})
    server = ServerApp()

    @server.main()
    def serve(grid: Grid, _: Context) -> None:
        Turns(job, initial).start(grid, initial, num_rounds=10**9)

    cores = os.cpu_count() or 1
    run_simulation(
        server,
        app,
        num_supernodes=len(job.counts),
        backend_config={
            "init_args": {"num_cpus": cores, "include_dashboard": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )


if __name__ == "__main__":
    # Ray's actors import the client by the name of this module.
    from bench.peers import flower

    flower.main()
