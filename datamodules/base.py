"""Clients -> cohorts: what every federated data set has in common."""

import abc
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

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

    Constructing it reads nothing: ``prepare_data`` downloads, where that can be asked for, and `setup` reads.

    Args:
        root: folder that holds the data sets by their names; None for the environment variable ``FEDLEAK_DATA``.
        clients_per_round: a number of clients, or a fraction in (0, 1] of all of them.
        seed: seed of every draw.
        num_workers: processes that build the next cohort while this one trains.
    """

    folders: ClassVar[tuple[str, ...]] = ()
    """Names of the data sets that it reads: those of their folders below ``root``."""

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

    @classmethod
    def folder_arguments(cls, folder: str) -> dict[str, Any]:  # noqa: ARG003 - subclasses use it
        """The arguments that choose one of `folders`, where there are several."""
        return {}

    @property
    @abc.abstractmethod
    def num_clients(self) -> int:
        """Number of clients."""

    @property
    @abc.abstractmethod
    def fingerprint(self) -> dict[str, str]:
        """Name of the data set and the sha256 of what was read."""

    @property
    def rounds(self) -> int | None:
        """Number of rounds after which the data end a training; None where only the trainer ends it."""
        return None

    @abc.abstractmethod
    def build_cohort(self, round_number: int, clients: Tensor) -> Cohort:
        """The given clients with their examples, in order."""

    def setup(self, stage: str) -> None:
        """Reads the clients' data, once Lightning has called ``prepare_data``; in plain Python the first use reads."""
        _ = self.num_clients

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
        """One item is one round, from the trainer's round on, up to `rounds`; each rank gets its share."""
        trainer = self.trainer
        rank, world, start = (
            (0, 1, 0) if trainer is None else (trainer.global_rank, trainer.world_size, trainer.global_step)
        )
        return DataLoader(
            _Rounds(self, rank, world),
            sampler=_From(start, self._end()),
            batch_size=None,
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
        )

    def _end(self) -> int | None:
        """Number of rounds after which the data or the server end the training."""
        server = None if self.trainer is None else getattr(self.trainer.lightning_module, "rounds", None)
        return min((end for end in (self.rounds, server) if end is not None), default=None)

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
    """Round numbers, without end where `end` is None.

    It has no length: Lightning would refuse a ``val_check_interval`` above it.
    """

    def __init__(self, start: int, end: int | None) -> None:
        self.start, self.end = start, end

    def __iter__(self) -> Iterator[int]:
        return iter(itertools.count(self.start) if self.end is None else range(self.start, self.end))
