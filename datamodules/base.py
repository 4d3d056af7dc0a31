"""Clients -> cohorts: what every federated data set has in common."""

import abc
import os
from collections.abc import Iterator
from pathlib import Path

import torch
from lightning import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from datamodules.cohort import Cohort
from protocol.errors import InputError
from protocol.seeding import generator_for
from ranges import NonNegativeInt

DATA_VARIABLE = "FEDLEAK_DATA"


class FederatedDataModule(LightningDataModule, abc.ABC):
    """Gives the cohort of every round; the cohort of round r is a pure function of (seed, r).

    Args:
        root: folder that holds the data sets by their names; None for the environment variable ``FEDLEAK_DATA``.
        clients_per_round: a number of clients, or a fraction in (0, 1] of all of them.
        seed: seed of every draw.
        num_workers: processes that build the next cohort while this one trains.
    """

    def __init__(
        self,
        *,
        root: str | None = None,
        clients_per_round: int | float = 1.0,
        seed: int = 0,
        num_workers: NonNegativeInt = 0,
    ) -> None:
        super().__init__()
        _check_participation(clients_per_round)
        self.root = root
        self.clients_per_round = clients_per_round
        self.seed = seed
        self.num_workers = num_workers

    @property
    @abc.abstractmethod
    def num_clients(self) -> int:
        """Number of clients."""

    @property
    @abc.abstractmethod
    def fingerprint(self) -> dict[str, str]:
        """Name of the data set and the sha256 of what was read."""

    @abc.abstractmethod
    def build_cohort(self, round_number: int, clients: Tensor) -> Cohort:
        """The given clients with their examples, in order."""

    def cohort(self, round_number: int) -> Cohort:
        """All clients of a round, in ascending order."""
        return self.build_cohort(round_number, self.participants(round_number))

    def participants(self, round_number: int) -> Tensor:
        """``(C,)`` numbers of the clients of a round, ascending."""
        size = participants_per_round(self.clients_per_round, self.num_clients)
        if size == self.num_clients:
            return torch.arange(self.num_clients)
        generator = generator_for(self.seed, "cohort", round_number)
        return torch.randperm(self.num_clients, generator=generator)[:size].sort().values

    def train_dataloader(self) -> DataLoader[Cohort]:
        """One item is one round, from the trainer's round on, without end; each rank gets its share."""
        trainer = self.trainer
        rank, world, start = (
            (0, 1, 0) if trainer is None else (trainer.global_rank, trainer.world_size, trainer.global_step)
        )
        return DataLoader(
            _Rounds(self, rank, world),
            sampler=_From(start),
            batch_size=None,
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
        )

    def data_root(self) -> Path:
        """The folder of the data sets, checked."""
        return data_root(self.root)


def data_root(root: str | None) -> Path:
    """The folder that holds the data sets: the argument, else the environment's.

    Raises:
        InputError: neither is given, or it is no folder.
    """
    given = root or os.environ.get(DATA_VARIABLE)
    if not given:
        raise InputError(
            expected="a data folder", found="none", way_out=f"Give --data.root DIR or set {DATA_VARIABLE}=DIR."
        )
    path = Path(given)
    if not path.is_dir():
        raise InputError(
            expected="a data folder",
            found=f"no folder at {given}",
            way_out=f"Give --data.root DIR or set {DATA_VARIABLE}.",
        )
    return path


def participants_per_round(clients_per_round: int | float, num_clients: int) -> int:
    """Number of clients in a round.

    Raises:
        InputError: more clients are asked for than there are.
    """
    if isinstance(clients_per_round, float):
        return max(1, round(clients_per_round * num_clients))
    if clients_per_round > num_clients:
        raise InputError(
            expected=f"clients_per_round of at most {num_clients}",
            found=str(clients_per_round),
            way_out="Give fewer clients, or 1.0 for all of them.",
        )
    return clients_per_round


def _check_participation(value: int | float) -> None:
    if value <= 0 or (isinstance(value, float) and value > 1):
        raise InputError(
            expected="clients_per_round a whole number above 0 or a fraction in (0, 1]",
            found=str(value),
            way_out="Give 1.0 for all clients in every round.",
        )


class _Rounds(Dataset[Cohort]):
    def __init__(self, data: FederatedDataModule, rank: int, world_size: int) -> None:
        self.data, self.rank, self.world_size = data, rank, world_size

    def __getitem__(self, round_number: int) -> Cohort:
        return self.data.cohort(round_number).share(self.rank, self.world_size)


class _From(Sampler[int]):
    """Round numbers without end; it has no length, so that `max_steps` alone ends the training."""

    def __init__(self, start: int) -> None:
        self.start = start

    def __iter__(self) -> Iterator[int]:
        number = self.start
        while True:
            yield number
            number += 1
