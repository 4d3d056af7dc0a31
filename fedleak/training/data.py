"""Base class of federated data sets: clients, and the cohort of every round."""

import abc
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from lightning import LightningDataModule, Trainer
from torch import Tensor
from torch.utils.data import DataLoader

from fedleak.client.cohort import Cohort
from fedleak.core.errors import InputError, require
from fedleak.core.ranges import NonNegativeInt
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.server.repeated_selection import RepeatedSelection
from fedleak.training.candidates import CandidateOptions, CandidatePool
from fedleak.training.data_folder import data_root
from fedleak.training.misspelt_members import refuse_misspelt
from fedleak.training.people import Attributes, People, draw_people
from fedleak.training.round_loader import round_loader
from fedleak.training.schedule import Schedule


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
        refuse_misspelt(type(self), FederatedDataModule)
        require(
            clients_per_round > 0 and not (isinstance(clients_per_round, float) and clients_per_round > 1),
            "clients_per_round a whole number above 0 or a fraction in (0, 1]",
            clients_per_round,
            "Give 1.0 for all clients in every round.",
        )
        self.root = root
        self.seed = seed
        self.num_workers = num_workers
        self.clients_per_round = clients_per_round
        self.attributes = attributes
        self.schedule = schedule
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
        users = self.client_users
        people = self.people
        truth = {}
        if users is not None:
            truth["user"] = users[clients]
        if people is not None:
            truth["attributes"] = people.table[clients]
        return truth

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
        start = 0
        of_server = None
        if self.trainer is not None:
            start = self.trainer.global_step
            of_server = getattr(self.trainer.lightning_module, "rounds", None)
        ends = [rounds for rounds in (self.rounds, of_server) if rounds is not None]
        rank, world = self._rank_and_world
        share = functools.partial(self._share_of_cohort, rank, world)
        return round_loader(share, start=start, end=min(ends, default=None), processes=self.num_workers)

    def _share_of_cohort(self, rank: int, world: int, round_number: int) -> Cohort:
        return self.cohort(round_number).share(rank, world)

    def evaluation_loader(
        self, numbers: Sequence[int], collate: Callable[[list[int]], dict[str, Tensor]], *, batch_size: int = 256
    ) -> DataLoader[dict[str, Tensor]]:
        """Batches of test examples, given by their numbers; each rank gets its share."""
        rank, world = self._rank_and_world
        return DataLoader(numbers[rank::world], batch_size=batch_size, collate_fn=collate)  # type: ignore[arg-type]

    @property
    def _rank_and_world(self) -> tuple[int, int]:
        if self.trainer is None:
            return (0, 1)
        return (self.trainer.global_rank, self.trainer.world_size)

    def data_root(self) -> Path:
        return data_root(self.root)


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


def participants_per_round(clients_per_round: int | float, num_clients: int) -> int:
    """Number of clients in a round."""
    if isinstance(clients_per_round, float):
        return max(1, round(clients_per_round * num_clients))
    way_out = "Give fewer clients, or 1.0 for all of them."
    require(clients_per_round <= num_clients, f"clients_per_round of at most {num_clients}", clients_per_round, way_out)
    return clients_per_round
