"""The smallest federated training: two numbers, a loader of rounds without end."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from fedleak.client.algorithm import DescentAlgorithm
from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.defenses.base import Defense
from fedleak.training.federated import FederatedModule


class ToyAlgorithm(DescentAlgorithm):
    """Every client pulls the public vector to its own number."""

    def loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        errors = (parameters["weight"].sum() - examples["x"]) ** 2
        return (errors * mask).sum() / mask.sum()


class Toy(FederatedModule):
    def __init__(self, defenses: list[Defense] | None = None) -> None:
        super().__init__(local=LocalTraining(learning_rate=0.1), defenses=defenses or [], weighting="uniform")
        self.weight = nn.Parameter(torch.ones(2))

    @property
    def algorithm(self) -> ToyAlgorithm:  # type: ignore[override]
        return ToyAlgorithm(local=self.local)


class Rounds(IterableDataset[Cohort]):
    """Round r holds the clients r and r + 1."""

    def __init__(self, first: int = 0) -> None:
        self.first = first

    def __iter__(self) -> Iterator[Cohort]:
        number = self.first
        while True:
            clients = torch.tensor([number, number + 1])
            yield Cohort(number, clients, {"x": torch.zeros(2, 1)}, torch.ones(2, 1, dtype=torch.bool))
            number += 1


def rounds(first: int = 0) -> DataLoader[Cohort]:
    return DataLoader(Rounds(first), batch_size=None)
