"""Options of the assignment of examples to clients, and the assignment itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from datamodules.partition.class_proportions import composition_counts, decaf_composition, has_composition
from datamodules.partition.deal import (
    FEWEST,
    deal_by_counts,
    deal_dirichlet,
    deal_evenly,
    deal_groups,
    deal_shards,
    dirichlet_table,
)
from datamodules.partition.pool import Pool
from protocol.errors import require
from protocol.seeding import PERSISTENT, generator_for

_TEN_CLASSES = "MNIST"
"""Data set whose composition in Decaf other data sets of ten classes use."""


@dataclass(frozen=True, kw_only=True)
class ClientSplit:
    """Options of the assignment of examples to clients.

    Attributes:
        scheme: ``iid``; ``dirichlet``: with `examples_per_client` the class proportions of each client are one draw,
            without it the clients' shares of each class are; ``shards`` (McMahan 2017); ``composition``: given
            proportions; ``groups``: each client has one group, e.g. the photographs of one skin lesion.
        clients: number of clients; a composition has its own.
        examples_per_client: number of examples of every client, or a list. None assigns all examples; a composition
            needs a number.
        alpha: concentration of the Dirichlet distribution; with a small one, clients have few classes.
        shards_per_client: shards of a client.
        composition: one row of proportions per client, or a data set's folder (``MNIST``, ``fer2013`` ...) for its
            users in Decaf's tables III to VII. None for the data set's own users in Decaf, or those of MNIST if Decaf
            has none.
    """

    scheme: Literal["iid", "dirichlet", "shards", "composition", "groups"] = "iid"
    clients: int = 10
    examples_per_client: int | Sequence[int] | None = None
    alpha: float = 0.5
    shards_per_client: int = 2
    composition: str | Sequence[Sequence[float]] | None = None

    def __post_init__(self) -> None:
        for name in ("clients", "shards_per_client"):
            require(getattr(self, name) >= 1, f"{name} of at least 1", getattr(self, name), "Give a larger number.")
        sizes = self.examples_per_client
        require(
            sizes is None or min([sizes] if isinstance(sizes, int) else sizes, default=0) >= FEWEST,
            f"examples_per_client of at least {FEWEST}",
            sizes,
            "Give each client more examples.",
        )
        require(
            self.scheme not in ("shards", "groups") or sizes is None,
            f"no examples_per_client for {self.scheme}",
            sizes,
            "They are as large as they are: leave it empty, or choose another scheme.",
        )
        require(
            self.scheme != "iid" or isinstance(sizes, int | None),
            "one number of examples_per_client for the scheme iid",
            "a list",
            "Choose the scheme composition with equal proportions.",
        )
        require(
            self.scheme != "composition" or sizes is not None,
            "examples_per_client for the scheme composition",
            "none",
            "Decaf prints no sizes; its users on MNIST have multiples of 120 if their proportions are exact.",
        )


def split_clients(pool: Pool, split: ClientSplit, *, seed: int, data: str) -> list[Tensor]:
    """Assigns the examples of a pool to clients.

    Args:
        pool: the examples.
        split: options.
        seed: seed of the draws.
        data: name of the data set, for its composition in Decaf.

    Returns:
        Numbers of the examples of every client; no two clients share a group.
    """
    generator = generator_for(seed, "client split", PERSISTENT)
    if split.scheme == "shards":
        return deal_shards(pool, split.clients, split.shards_per_client, generator=generator)
    if split.scheme == "groups":
        return deal_groups(pool, split.clients)
    if split.scheme == "iid":
        size = split.examples_per_client
        return deal_evenly(pool, split.clients, size if isinstance(size, int) else None)
    if split.scheme == "dirichlet" and split.examples_per_client is None:
        return deal_dirichlet(pool, split.clients, split.alpha, generator=generator)
    if split.scheme == "dirichlet":
        proportions = dirichlet_table(split.clients, len(pool.class_names), split.alpha, generator=generator)
    else:
        proportions = _given(split.composition or (data if has_composition(data) else _TEN_CLASSES))
    assert split.examples_per_client is not None
    return deal_by_counts(pool, composition_counts(proportions, split.examples_per_client))


def _given(composition: str | Sequence[Sequence[float]]) -> Tensor:
    if isinstance(composition, str):
        return decaf_composition(composition)
    try:
        table = torch.tensor(composition, dtype=torch.float64)
    except (TypeError, ValueError):
        table = torch.empty(0)
    require(
        table.dim() == 2 and table.numel(),
        "a composition with as many proportions in every row",
        composition,
        "Give one row per client and one column per class.",
    )
    return table
