"""pfl-research: its FederatedAveraging and SimulatedBackend, in one process or, started by torchrun, in several."""

import os

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel

from bench.peers.networks import InteractionNetwork, Network, network_of, optimizer_of, weights_of
from bench.peers.protocol import Host, Job, job_folder


class Averaging(FederatedAveraging):
    """Federated averaging whose clients keep a private vector, if the network has one."""

    def __init__(self, network: Network, users: torch.Tensor | None) -> None:
        super().__init__()
        self.network, self.users = network, users

    def train_one_user(self, initial_model_state, model, user_dataset, central_context):  # type: ignore[no-untyped-def]
        """Loads the client's private vector, trains, and stores it."""
        client = user_dataset.metadata["client"]
        if self.users is not None and isinstance(self.network, InteractionNetwork):
            self.network.user.data.copy_(self.users[client])
        result = super().train_one_user(initial_model_state, model, user_dataset, central_context)
        if self.users is not None and isinstance(self.network, InteractionNetwork):
            self.users[client] = self.network.user.detach()
        return result


class Turns(TrainingProcessCallback):
    """Makes all processes wait for a request; the first one communicates."""

    def __init__(self, host: Host | None, world: int) -> None:
        self.host, self.world = host, world

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        """Waits for the first round."""
        self._wait()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):  # type: ignore[no-untyped-def]
        """Reports the end of the round and waits for the next."""
        if self.host:
            self.host.done()
        return not self._wait(), Metrics()

    def _wait(self) -> bool:
        go = torch.tensor(int(self.host.wait()) if self.host else 0)
        if self.world > 1:
            torch.distributed.broadcast(go, 0)
        return bool(go)


def main() -> None:
    """Runs rounds on request."""
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    job = Job(job_folder())
    network = network_of(job)
    # pfl requires the method; nothing is evaluated here.
    network.metrics = lambda *_: {}  # type: ignore[assignment]
    host = Host(lambda: weights_of(network)) if rank == 0 else None
    model = PyTorchModel(
        network,
        lambda parameters, lr: optimizer_of(job, parameters, lr),
        torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=1.0),
    )
    users = None
    if job.plan.kind == "interactions":
        users = torch.from_numpy(job.arrays["users"].copy())
        # Only now, because pfl sends only what is trainable when the model is made.
        network.requires_grad_()
    data = _data(job, rank, world)
    cohort = job.cohorts.shape[1]
    parameters = NNAlgorithmParams(
        central_num_iterations=10**9, evaluation_frequency=10**9, train_cohort_size=cohort, val_cohort_size=0
    )
    training = NNTrainHyperParams(
        local_learning_rate=job.plan.learning_rate,
        local_num_epochs=job.plan.epochs,
        local_batch_size=job.plan.batch_size,
    )
    Averaging(network, users).run(
        parameters,
        SimulatedBackend(training_data=data, val_data=data),
        model,
        training,
        callbacks=[Turns(host, world)],
        send_metrics_to_platform=False,
    )


def _data(job: Job, rank: int, world: int) -> FederatedDataset:
    """The cohorts in their order; a client's weight is its number of examples, which pfl divides by at the end.

    pfl asks every process for a client as often as that one trains, and draws one for each process each time: where
    they do not divide the cohort, the draws of one run ahead, and later rounds miss clients and train others twice.
    So each process is given what makes up a round of its own.
    """
    rounds, size = job.cohorts.shape
    drawn = world * len(range(rank, size, world))
    places = ((number % rounds, min(place, size - 1)) for number in range(10**9) for place in range(drawn))

    def make(place: tuple[int, int]) -> Dataset:
        client = int(job.cohorts[place])
        arrays = job.images(*place) if job.plan.kind == "images" else job.pairs(client)
        # Tensors, because pfl converts arrays to 32-bit floats, class numbers too.
        return Dataset([torch.from_numpy(array) for array in arrays], user_id=str(client), metadata={"client": client})

    return FederatedDataset(make, lambda: next(places))


if __name__ == "__main__":
    main()
