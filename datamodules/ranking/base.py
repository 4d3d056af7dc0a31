"""Base class of ranking data sets: groups of queries with their documents and grades of relevance."""

import abc
import functools
import logging
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader

from fedleak.client.cohort import Cohort
from fedleak.core.errors import require
from fedleak.core.ranges import PositiveInt
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.datamodules.ranking.letor_parser import Queries
from fedleak.training.data import FederatedDataModule, participants_per_round

_logger = logging.getLogger(__name__)


class RankingDataModule(FederatedDataModule):
    """Groups of queries as clients (RAIFLE, section V.B.2). A subclass reads the queries.

    The groups come from one shuffle of the training queries. Queries with one document, which cannot be ranked, and the
    last queries if they fill no group, are left out.

    Args:
        queries_per_client: queries of each client (RAIFLE, Table VII: 4, 8, 16 for MQ2007, 12, 24, 48 for MSLR).
        users: least number of updates of single users in the whole training, which gives the number of rounds. A user
            with the same queries in another round is the same person, and intervals count it once. None: the trainer
            gives the number of rounds.
        aggregate: clients of a secure aggregate; a round consists of whole aggregates.
        targets: clients of each aggregate that count as users, whose interactions the server infers; None for all.
        private_retrieval: hide from the server which documents a client gets; half of each round's clients get
            `planted_document` instead of one of theirs (RAIFLE, section VII.C).
    """

    def __init__(
        self,
        *,
        queries_per_client: int = 4,
        users: PositiveInt | None = None,
        aggregate: PositiveInt = 1,
        targets: PositiveInt | None = None,
        private_retrieval: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require(
            queries_per_client >= 1,
            "queries_per_client of at least 1",
            queries_per_client,
            "The paper uses 4, 8 and 16.",
        )
        require(
            targets is None or targets <= aggregate,
            f"at most {aggregate} targets, all clients of an aggregate",
            targets,
            "Give data.aggregate the number of its clients.",
        )
        self.queries_per_client = queries_per_client
        self.users = users
        self.private_retrieval = private_retrieval
        self.aggregate = aggregate
        self.targets = targets or aggregate

    @abc.abstractmethod
    def read_train(self) -> Queries:
        """Reads the queries of the clients."""

    @abc.abstractmethod
    def read_test(self) -> Queries:
        """Reads the test queries."""

    @property
    @abc.abstractmethod
    def num_features(self) -> int:
        """Number of features F of a document."""

    @property
    @abc.abstractmethod
    def num_grades(self) -> int:
        """Number of grades of relevance, numbered from 0."""

    @property
    def num_clients(self) -> int:
        return len(self.client_queries)

    @functools.cached_property
    def _train(self) -> Queries:
        return self.read_train()

    @functools.cached_property
    def _test(self) -> Queries:
        return self.read_test()

    @functools.cached_property
    def _rankable(self) -> Tensor:
        """``(N,)`` numbers of the queries with more than one document."""
        # A list of one document has one order: nothing is ranked, and there is no gradient.
        queries = torch.from_numpy(np.flatnonzero(self._train.lengths > 1))
        dropped = self._train.num_queries - len(queries)
        if dropped:
            _logger.info("%d of %d queries have one document and are left out", dropped, self._train.num_queries)
        require(
            len(queries) >= self.queries_per_client,
            f"queries_per_client of at most {len(queries)}, the queries of more than one document",
            self.queries_per_client,
            "Give each client fewer queries.",
        )
        return queries

    @property
    def _per_deal(self) -> int:
        """Number of clients, which together hold every query once."""
        return len(self._rankable) // self.queries_per_client

    @property
    def _per_round(self) -> int:
        """Number of clients of a round, in whole aggregates."""
        size = participants_per_round(self.clients_per_round, self._per_deal)
        require(
            size >= self.aggregate,
            f"at most {size} clients in an aggregate, the clients of a round",
            self.aggregate,
            "Give each client fewer queries, or aggregate fewer of them.",
        )
        return size // self.aggregate * self.aggregate

    @functools.cached_property
    def rounds(self) -> int | None:
        """Number of rounds in which `users` take part."""
        if self.users is None:
            return None
        # Of each aggregate, only the targets count as users.
        users_per_round = self._per_round // self.aggregate * self.targets
        return math.ceil(self.users / users_per_round)

    @functools.cached_property
    def client_queries(self) -> Tensor:
        """``(num_clients, Q)`` numbers of the training queries of every client."""
        generator = generator_for(self.seed, "users", PERSISTENT, 0)
        order = torch.randperm(len(self._rankable), generator=generator)
        # What does not fill a client is left out.
        dealt = order[: self._per_deal * self.queries_per_client]
        return self._rankable[dealt].reshape(-1, self.queries_per_client)

    def participants(self, round_number: int) -> Tensor:
        generator = self.secret_draws("cohort", round_number)
        order = torch.randperm(self._per_deal, generator=generator)
        return order[: self._per_round].sort().values

    @property
    def grade_law(self) -> list[float]:
        """Share of each grade among the training documents."""
        counts = np.bincount(self._train.grades, minlength=self.num_grades)
        return [float(count) for count in counts / counts.sum()]

    def build_cohort(self, round_number: int, clients: Tensor) -> Cohort:
        """Cohort of some clients; example q of a client is its query q.

        ``examples["document"]`` ``(C, Q, D)`` gives the documents of a query by their positions in
        ``shared["features"]`` ``(M, F)``, padded with -1; ``examples["grade"]`` ``(C, Q, D)`` is padded with 0.
        ``shared["row"]`` ``(M,)`` are the documents' numbers in the training file. With private retrieval,
        ``shared["planted"]`` ``(F,)`` is the planted document, and ``examples["holder"]`` ``(C, Q)`` True for those who
        get it.
        """
        queries = self.client_queries[clients]
        # Documents of all clients in one table, and for each query their positions in it, padded with -1.
        document, row = _documents(self._train, queries.flatten())
        grades = torch.from_numpy(self._train.grades)[row]
        grade = grades[document.clamp(min=0)].where(document >= 0, 0)
        shape = (*queries.shape, document.shape[1])
        examples = {"document": document.reshape(shape), "grade": grade.reshape(shape)}
        shared = {"features": torch.from_numpy(self._train.features)[row], "row": row}
        if self.private_retrieval:
            # Half of the clients hold the planted document.
            order = torch.randperm(len(clients), generator=self.secret_draws("holders", round_number))
            examples["holder"] = (order < len(clients) // 2)[:, None].expand(queries.shape)
            shared["planted"] = self.planted_document
        return Cohort(round_number, clients, examples, torch.ones_like(queries, dtype=torch.bool), shared=shared)

    @functools.cached_property
    def planted_document(self) -> Tensor:
        """``(F,)`` features of the first test document that differs from all training documents.

        Raises:
            InputError: there is none.
        """
        train_documents = _as_bytes(self._train.features)
        test_documents = _as_bytes(self._test.features)
        is_new = ~np.isin(test_documents, train_documents)
        new_documents = np.flatnonzero(is_new)
        require(
            len(new_documents),
            "a test document unlike all of the training's",
            "none",
            "Take another fold or data set.",
        )
        return torch.from_numpy(self._test.features[new_documents[0]])

    def val_dataloader(self) -> DataLoader[dict[str, Tensor]]:
        """Batches of test queries: ``features (B, D, F)``, ``grade (B, D)``, ``mask (B, D)`` True for documents."""
        return self.evaluation_loader(range(self._test.num_queries), self._padded, batch_size=64)

    def _padded(self, queries: list[int]) -> dict[str, Tensor]:
        document, row = _documents(self._test, torch.tensor(queries))
        mask = document >= 0
        positions = document.clamp(min=0)
        features = torch.from_numpy(self._test.features)[row][positions].where(mask[..., None], 0.0)
        grade = torch.from_numpy(self._test.grades)[row][positions].where(mask, 0)
        return {"features": features, "grade": grade, "mask": mask}


def _as_bytes(features: NDArray[np.float32]) -> NDArray[np.void]:
    """``(M,)`` each row as one comparable value; adding 0.0 turns -0.0, which has other bytes, into 0.0."""
    rows = np.ascontiguousarray(features + np.float32(0))
    row_type = np.dtype((np.void, rows.itemsize * rows.shape[1]))
    return rows.view(row_type)[:, 0]


def _documents(source: Queries, queries: Tensor) -> tuple[Tensor, Tensor]:
    """The documents of some queries, query after query.

    Returns:
        ``(K, D)`` positions in the second tensor, padded with -1, and ``(M,)`` rows of the documents in `source`.
    """
    starts = torch.from_numpy(source.offsets)[queries]
    lengths = torch.from_numpy(source.lengths)[queries]
    # Where each query begins among the documents of all of them, and from there to its rows in the source.
    begins = lengths.cumsum(0) - lengths
    row = torch.arange(int(lengths.sum())) + (starts - begins).repeat_interleave(lengths)
    longest = int(lengths.max()) if len(lengths) else 0
    column = torch.arange(longest)
    return (begins[:, None] + column).where(column < lengths[:, None], -1), row
