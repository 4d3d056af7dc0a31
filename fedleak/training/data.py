"""Base class of federated data sets: clients, and the cohort of every round."""

import abc
import functools
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from lightning import LightningDataModule, Trainer
from lightning.fabric.utilities.seed import pl_worker_init_function
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

from fedleak.client.cohort import Cohort
from fedleak.core.errors import InputError, require
from fedleak.core.ranges import NonNegativeInt
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.core.signals import end_with_parent
from fedleak.server.repeated_selection import RepeatedSelection
from fedleak.training.candidates import CandidateOptions, CandidatePool
from fedleak.training.people import Attributes, People, draw_people
from fedleak.training.schedule import Schedule
from fedleak_recorder.nearest import nearest

DATA_VARIABLE = "FEDLEAK_DATA"
_OTHER_LETTERS = 0.15
"""Share of letters up to which a name that differs in them is a misspelt one; in ``auxilary``, one of 17 differs."""


class FederatedDataModule(LightningDataModule, abc.ABC):
    """Data set that is split over clients; the cohort of round r is a pure function of (secret key, seed, r).

    The constructor reads nothing: ``prepare_data`` downloads if that is asked for, and `setup` reads.

    Args:
        root: folder with one folder per data set; None for the environment variable ``FEDLEAK_DATA``.
        clients_per_round: number of clients in a round, or their fraction in (0, 1].
        seed: seed of every draw.
        num_workers: processes that build the next cohorts during training.
        attributes: attributes of the people behind the clients that a recording holds; None for none.
        schedule: how the clients of a round are drawn.

    Attributes:
        secret: the secret key of the training, which sets it: a public draw of who takes part would name the clients of
            a recording. None without a training; the draws then depend on the seed only.

    Example:
        >>> import torch
        >>> from fedleak import FederatedDataModule
        >>> from fedleak.client import Cohort
        >>> class Heights(FederatedDataModule):
        ...     '''Three clients with one height in cm each.'''
        ...
        ...     num_clients = 3
        ...     fingerprint = {"name": "heights", "sha256": ""}
        ...
        ...     def build_cohort(self, round_number, clients):
        ...         examples = {"height": 170.0 + clients[:, None]}
        ...         mask = torch.ones(len(clients), 1, dtype=torch.bool)
        ...         return Cohort(round=round_number, clients=clients, examples=examples, mask=mask)
        >>> first = next(iter(Heights(clients_per_round=3).train_dataloader()))
        >>> first.examples["height"].mean()
        tensor(171.)
    """

    folders: ClassVar[tuple[str, ...]] = ()
    """Names of the data sets that the class reads, which are those of their folders below ``root``."""
    repeated_selection: RepeatedSelection | None = None
    """Clients that the server selects in all rounds from some round on; None if all cohorts are random."""

    def __init__(
        self,
        *,
        root: str | None = None,
        clients_per_round: int | float = 1.0,
        seed: int = 0,
        num_workers: NonNegativeInt = 0,
        attributes: Attributes | None = None,
        schedule: Schedule = Schedule(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__()
        refuse_misspelt(type(self))
        require(
            clients_per_round > 0 and not (isinstance(clients_per_round, float) and clients_per_round > 1),
            "clients_per_round a whole number above 0 or a fraction in (0, 1]",
            clients_per_round,
            "Give 1.0 for all clients in every round.",
        )
        self.root, self.seed, self.num_workers = root, seed, num_workers
        self.clients_per_round, self.attributes, self.schedule = clients_per_round, attributes, schedule
        self.secret: bytes | None = None

    @classmethod
    def folder_arguments(cls, folder: str) -> dict[str, Any]:  # noqa: ARG003 - subclasses use it
        """Constructor arguments that choose one of several `folders`."""
        return {}

    @property
    @abc.abstractmethod
    def num_clients(self) -> int:
        """Number of clients."""

    @property
    @abc.abstractmethod
    def fingerprint(self) -> dict[str, str]:
        """``name`` of the data set and ``sha256`` of what was read."""

    @property
    def rounds(self) -> int | None:
        """Number of rounds that the data allow; None if only the trainer ends the training."""
        return None

    @abc.abstractmethod
    def build_cohort(self, round_number: int, clients: Tensor) -> Cohort:
        """Cohort of the given clients, in their order."""

    def read_attributes(self) -> dict[str, Tensor]:
        """Attributes of the person behind each client, ``(num_clients,)`` int64 by name; an error if there are none."""
        raise self._without_people()

    @property
    def persons(self) -> Tensor:
        """``(num_clients,)`` int64 number of the person behind each client."""
        return torch.arange(self.num_clients)

    def raw_features(self) -> dict[str, Tensor]:
        """Each client's raw data, ``(num_clients, F)`` float32 by kind, for an upper bound of attacks on attributes."""
        raise self._without_people()

    def auxiliary(self) -> dict[str, Tensor]:
        """The server's auxiliary data by name, such as ``image (M, ch, h, w)`` and ``label (M,)``; none by default."""
        return {}

    @property
    def record_grid(self) -> tuple[Tensor, Tensor] | None:
        """Step and origin ``(*shape)`` float64 of the numbers of a record; None for 8-bit pixels and whole numbers."""
        return None

    def record_copies(self, records: Tensor) -> Tensor | None:
        """``(M,)`` int64 number of examples of the whole set that equal each of ``records (M, *shape)``; None for none.

        What occurs once names its person.
        """
        return None

    def candidates(self, options: CandidateOptions) -> CandidatePool:
        """Candidates of membership attacks; an error if the data have no records with classes."""
        raise InputError(
            expected="a data set of labelled images, for DeltaRecorder.candidates",
            found=type(self).__name__,
            way_out="Remove candidates from the recorder; in a recommender the served items are the candidates.",
        )

    @property
    def client_users(self) -> Tensor | None:
        """``(num_clients,)`` int64 user of every device; None if a client is no device of a user."""
        return None

    @property
    def client_known(self) -> Tensor | None:
        """``(num_clients,)`` True for the adversary's own devices; None if it has none."""
        return None

    @property
    def holdout_users(self) -> Tensor:
        """``(H,)`` int64 users whose data represent unseen users; none by default."""
        return torch.zeros(0, dtype=torch.int64)

    def client_examples(self) -> list[Tensor]:
        """Numbers of the examples of every client; an error if the data have no devices of the adversary's own."""
        raise self._without_devices()

    def raw_examples(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Features ``(M, ...)`` and labels ``(M,)`` of examples; an error as of `client_examples`."""
        raise self._without_devices()

    @property
    def num_items(self) -> int | None:
        """Number of items in the catalogue; None if clients have no items."""
        return None

    def user_items(self) -> list[npt.NDArray[np.int64]]:
        """Items with which each client interacted; none by default. Their popularity is public."""
        return []

    def draw_clients(self, count: int) -> Tensor:
        """``(count,)`` numbers of clients drawn for a recording of few, ascending; all if there are fewer."""
        order = torch.randperm(self.num_clients, generator=self.secret_draws("victims"))
        return order[:count].sort().values

    def _without_people(self) -> InputError:
        return InputError(
            expected="a data set with attributes of the people behind its clients",
            found=type(self).__name__,
            way_out="Leave data.attributes out, or take MovieLens (ml-100k), Blog or SkinCancer.",
        )

    def _without_devices(self) -> InputError:
        return InputError(
            expected="client_examples and raw_examples of a data set with client_known",
            found=f"not both in {type(self).__name__}",
            way_out="Add what is missing, or derive the class from OwnedDataModule.",
        )

    def truth_of(self, clients: Tensor) -> dict[str, Tensor]:
        """What is true of ``clients (C,)`` themselves, ``(C, ...)`` by name: a device's user, people's attributes."""
        users, people = self.client_users, self.people
        of_users = {} if users is None else {"user": users[clients]}
        return of_users if people is None else {**of_users, "attributes": people.table[clients]}

    @functools.cached_property
    def people(self) -> People | None:
        """The people behind the clients: part of the ground truth. None without the option `attributes`."""
        if self.attributes is None:
            return None
        return draw_people(self.read_attributes(), self.persons, self.attributes, seed=self.seed)

    def setup(self, stage: str) -> None:
        """Reads the clients' data; without Lightning, the first use does."""
        _ = self.num_clients, self.people

    def cohort(self, round_number: int) -> Cohort:
        """Cohort of a round, its clients in ascending order."""
        return self.build_cohort(round_number, self.participants(round_number))

    def participants(self, round_number: int) -> Tensor:
        """``(C,)`` numbers of the clients of a round, ascending."""
        size = participants_per_round(self.clients_per_round, self.num_clients)
        return self.schedule.draw(size, self.num_clients, round_number, self.secret_draws, once=PERSISTENT)

    def secret_draws(self, purpose: str, *key: int) -> torch.Generator:
        """Generator of draws that would name clients to whoever can repeat them."""
        if self.secret is None:
            return generator_for(self.seed, purpose, *key)
        return generator_for(self.secret, purpose, self.seed, *key)

    def train_dataloader(self) -> DataLoader[Cohort]:
        """One item per round, from the trainer's round on until data or server end; each rank gets its share."""
        start = 0 if self.trainer is None else self.trainer.global_step
        server = None if self.trainer is None else getattr(self.trainer.lightning_module, "rounds", None)
        end = min((end for end in (self.rounds, server) if end is not None), default=None)
        return DataLoader(
            _Rounds(self, *self._rank_and_world),
            sampler=_RoundNumbers(start, end),
            batch_size=None,
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
            worker_init_fn=partial(_begin_worker, os.getpid()) if self.num_workers else None,
        )

    def evaluation_loader(
        self, numbers: Sequence[int], collate: Callable[[list[int]], dict[str, Tensor]], *, batch_size: int = 256
    ) -> DataLoader[dict[str, Tensor]]:
        """Batches of test examples, given by their numbers; each rank gets its share."""
        rank, world = self._rank_and_world
        return DataLoader(numbers[rank::world], batch_size=batch_size, collate_fn=collate)  # type: ignore[arg-type]

    @property
    def _rank_and_world(self) -> tuple[int, int]:
        return (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)

    def data_root(self) -> Path:
        return data_root(self.root)


def padded_cohort(
    round_number: int, clients: Tensor, parts: Sequence[Tensor], fields: Callable[[Tensor], dict[str, Tensor]]
) -> Cohort:
    """Cohort of clients with the examples of the numbers `parts`; the fields ``(C, N, ...)`` are padded with 0."""
    numbers = pad_sequence(list(parts), batch_first=True, padding_value=-1)
    mask = numbers >= 0
    flat = fields(numbers.clamp(min=0).flatten())
    examples = {name: values.reshape(*numbers.shape, *values.shape[1:]) for name, values in flat.items()}
    for values in examples.values():
        values[~mask] = 0
    return Cohort(round_number, clients, examples, mask)


def data_of(trainer: Trainer) -> FederatedDataModule | None:
    """The Trainer's data; None if it trains on data loaders.

    Raises:
        InputError: they do not declare what a recording asks of data.
    """
    data = getattr(trainer, "datamodule", None)  # Lightning sets it only where there is one
    way_out = "Derive the class from fedleak.training.data.FederatedDataModule."
    require(
        data is None or isinstance(data, FederatedDataModule), "a FederatedDataModule", type(data).__name__, way_out
    )
    return data


def refuse_misspelt(kind: type) -> None:
    """Refuses a data set with a public member that is nearly one of those that a recording asks for."""
    offered = [name for name in vars(FederatedDataModule) if not name.startswith("_")]
    given = {name for base in kind.__mro__ if not issubclass(FederatedDataModule, base) for name in vars(base)}
    for name in sorted(given - {*offered}):
        if name.startswith("_"):
            continue
        for near in nearest(name, offered)[:1]:
            misspelt = _other_letters(name, near) <= _OTHER_LETTERS
            way_out = "Correct the name, or begin it with _."
            require(not misspelt, f"{near} in {kind.__name__}", f"{name}; did you mean {near}?", way_out)


def _other_letters(one: str, other: str) -> float:
    """Share of the letters of two names that the other one lacks, wherever they stand."""
    letters, other_letters = Counter(one), Counter(other)
    differing = (letters - other_letters).total() + (other_letters - letters).total()
    return differing / (len(one) + len(other))


def data_root(root: str | None) -> Path:
    """Folder that holds the data sets: the argument, by default the value of ``FEDLEAK_DATA``."""
    given = root or os.environ.get(DATA_VARIABLE)
    way_out = f"Give --data.root DIR or set {DATA_VARIABLE}=DIR."
    if not given:
        raise InputError(expected="a data folder", found="none", way_out=way_out)
    require(Path(given).is_dir(), "a data folder", f"no folder at {given}", way_out)
    return Path(given)


def participants_per_round(clients_per_round: int | float, num_clients: int) -> int:
    """Number of clients in a round."""
    if isinstance(clients_per_round, float):
        return max(1, round(clients_per_round * num_clients))
    way_out = "Give fewer clients, or 1.0 for all of them."
    require(clients_per_round <= num_clients, f"clients_per_round of at most {num_clients}", clients_per_round, way_out)
    return clients_per_round


def _begin_worker(parent: int, worker: int) -> None:
    """Begins a process that loads data: it ends with its parent, also while it waits for room to put a cohort."""
    end_with_parent(parent)
    if os.environ.get("PL_SEED_WORKERS") == "1":  # what Lightning does where a loader has no such function
        pl_worker_init_function(worker)


class _Rounds(Dataset[Cohort]):
    def __init__(self, data: FederatedDataModule, rank: int, world_size: int) -> None:
        self.data, self.rank, self.world_size = data, rank, world_size

    def __getitem__(self, round_number: int) -> Cohort:
        return self.data.cohort(round_number).share(self.rank, self.world_size)


class _RoundNumbers(Sampler[int]):
    """Round numbers up to `end`, if there is one; without a length, so that any ``val_check_interval`` is valid."""

    def __init__(self, start: int, end: int | None) -> None:
        self.start, self.end = start, end

    def __iter__(self) -> Iterator[int]:
        return iter(itertools.count(self.start) if self.end is None else range(self.start, self.end))
