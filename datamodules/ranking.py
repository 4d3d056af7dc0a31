"""A ranker's clients: groups of queries, the documents of each and their grades of relevance."""

import abc
import functools
import logging

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from datamodules.base import FederatedDataModule, participants_per_round
from datamodules.cohort import Cohort
from datamodules.letor_file import Queries
from protocol.errors import InputError
from protocol.seeding import PERSISTENT, generator_for
from ranges import NonNegativeInt

_logger = logging.getLogger(__name__)


class RankingDataModule(FederatedDataModule):
    """Groups of queries as clients (RAIFLE, section V.B.2); see `FederatedDataModule`. A subclass reads the queries.

    The groups come of one shuffle of the training queries. A query with one document offers nothing to rank and is left
    out; so are the last queries where they fill no group.

    Args:
        root: see `FederatedDataModule`.
        clients_per_round: see `FederatedDataModule`.
        seed: see `FederatedDataModule`.
        num_workers: see `FederatedDataModule`.
        queries_per_client: queries of each client (RAIFLE, Table VII: 4, 8, 16 for MQ2007, 12, 24, 48 for MSLR).
        shuffles: how often the queries are dealt out to clients anew. Clients of one shuffle share no query; a round
            has the clients of one shuffle only, and the shuffles take turns.
    """

    def __init__(
        self,
        *,
        root: str | None = None,
        clients_per_round: int | float = 1.0,
        seed: int = 0,
        num_workers: NonNegativeInt = 0,
        queries_per_client: int = 4,
        shuffles: int = 1,
    ) -> None:
        super().__init__(root=root, clients_per_round=clients_per_round, seed=seed, num_workers=num_workers)
        if queries_per_client < 1:
            raise InputError(
                expected="queries_per_client of at least 1",
                found=str(queries_per_client),
                way_out="The paper uses 4, 8 and 16.",
            )
        if shuffles < 1:
            raise InputError(expected="shuffles of at least 1", found=str(shuffles), way_out="1 deals out once.")
        self.queries_per_client = queries_per_client
        self.shuffles = shuffles

    @abc.abstractmethod
    def read_train(self) -> Queries:
        """Reads the queries that the clients hold."""

    @abc.abstractmethod
    def read_test(self) -> Queries:
        """Reads the queries on which the ranker is evaluated."""

    @property
    @abc.abstractmethod
    def num_features(self) -> int:
        """Number of features F of a document."""

    @property
    @abc.abstractmethod
    def num_grades(self) -> int:
        """Number of grades of relevance, which count from 0."""

    @property
    def num_clients(self) -> int:
        """Number of groups of queries."""
        return len(self._groups)

    def client_queries(self) -> Tensor:
        """``(num_clients, Q)`` numbers of the training queries of every client."""
        return self._groups

    @functools.cached_property
    def _train(self) -> Queries:
        return self.read_train()

    @functools.cached_property
    def _test(self) -> Queries:
        return self.read_test()

    @functools.cached_property
    def _groups(self) -> Tensor:
        queries = torch.from_numpy(np.flatnonzero(self._train.lengths > 1))
        dropped = self._train.num_queries - len(queries)
        if dropped:
            _logger.info("%d of %d queries have one document and are left out", dropped, self._train.num_queries)
        clients = len(queries) // self.queries_per_client
        if not clients:
            raise InputError(
                expected=f"queries_per_client of at most {len(queries)}, the queries of more than one document",
                found=str(self.queries_per_client),
                way_out="Give each client fewer queries.",
            )
        size = clients * self.queries_per_client
        orders = [
            torch.randperm(len(queries), generator=generator_for(self.seed, "users", PERSISTENT, shuffle))[:size]
            for shuffle in range(self.shuffles)
        ]
        return queries[torch.cat(orders)].reshape(self.shuffles * clients, self.queries_per_client)

    def participants(self, round_number: int) -> Tensor:
        """See `FederatedDataModule.participants`; drawn among the clients of one shuffle."""
        everyone = self.num_clients // self.shuffles
        size = participants_per_round(self.clients_per_round, everyone)
        generator = generator_for(self.seed, "cohort", round_number)
        chosen = torch.randperm(everyone, generator=generator)[:size].sort().values
        return chosen + everyone * (round_number % self.shuffles)

    @property
    def grade_law(self) -> list[float]:
        """How often each grade occurs among the training documents."""
        counts = np.bincount(self._train.grades, minlength=self.num_grades)
        return [float(count) for count in counts / counts.sum()]

    def build_cohort(self, round_number: int, clients: Tensor) -> Cohort:
        """See `FederatedDataModule.build_cohort`; example q of a client is its query q.

        ``examples["document"]`` ``(C, Q, D)`` names the documents of a query by their positions in
        ``shared["features"]`` ``(M, F)``, padded with -1; ``examples["grade"]`` ``(C, Q, D)`` is padded with 0.
        ``shared["row"]`` ``(M,)`` are the documents' numbers in the training file.
        """
        queries = self._groups[clients]
        document, row = _documents(self._train, queries.flatten())
        grade = torch.from_numpy(self._train.grades)[row][document.clamp(min=0)].where(document >= 0, 0)
        shape = (*queries.shape, document.shape[1])
        return Cohort(
            round_number,
            clients,
            {"document": document.reshape(shape), "grade": grade.reshape(shape)},
            torch.ones_like(queries, dtype=torch.bool),
            shared={"features": torch.from_numpy(self._train.features)[row], "row": row},
        )

    def val_dataloader(self) -> DataLoader[dict[str, Tensor]]:
        """Batches of test queries: ``features (B, D, F)``, ``grade (B, D)``, ``mask (B, D)`` True for documents."""
        world, rank = (1, 0) if self.trainer is None else (self.trainer.world_size, self.trainer.global_rank)
        queries = list(range(rank, self._test.num_queries, world))
        return DataLoader(queries, batch_size=64, collate_fn=self._padded)  # type: ignore[arg-type]

    def _padded(self, queries: list[int]) -> dict[str, Tensor]:
        document, row = _documents(self._test, torch.tensor(queries))
        mask, at = document >= 0, document.clamp(min=0)
        features = torch.from_numpy(self._test.features)[row][at].where(mask[..., None], 0.0)
        grade = torch.from_numpy(self._test.grades)[row][at].where(mask, 0)
        return {"features": features, "grade": grade, "mask": mask}


def _documents(source: Queries, queries: Tensor) -> tuple[Tensor, Tensor]:
    """The documents of some queries, one query after the other.

    Returns:
        ``(K, D)`` positions in the second, padded with -1, and ``(M,)`` the documents' rows in `source`.
    """
    starts = torch.from_numpy(source.offsets)[queries]
    lengths = torch.from_numpy(source.lengths)[queries]
    begins = lengths.cumsum(0) - lengths
    row = torch.arange(int(lengths.sum())) + (starts - begins).repeat_interleave(lengths)
    column = torch.arange(int(lengths.max()) if len(lengths) else 0)
    return (begins[:, None] + column).where(column < lengths[:, None], -1), row
