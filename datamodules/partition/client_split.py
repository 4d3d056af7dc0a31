"""How a data set's examples are dealt out to clients: the options, and the deal that they name."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from datamodules.partition.class_proportions import composition_counts, decaf_composition, has_composition
from datamodules.partition.deal import FEWEST, deal_by_counts, deal_dirichlet, deal_evenly, deal_shards, dirichlet_table
from datamodules.partition.pool import Pool
from protocol.errors import InputError
from protocol.seeding import PERSISTENT, generator_for

_TEN_CLASSES = "MNIST"
"""Whose users' compositions other data sets of ten classes take."""


@dataclass(frozen=True, kw_only=True)
class ClientSplit:
    """Who holds what.

    Attributes:
        scheme: ``iid``; ``dirichlet``, where with `examples_per_client` each client's proportions are one draw, and
            without it all examples are dealt and each class's shares are one draw; ``shards`` (McMahan 2017);
            ``composition``, given.
        clients: their number; a composition brings its own.
        examples_per_client: of each client, or a list. None deals everything out; a composition needs a number.
        alpha: concentration of Dirichlet's law; small for clients of few classes.
        shards_per_client: shards that a client gets.
        composition: one row of proportions per client, or the data set whose users in Decaf's tables III to VII are
            meant, by the name of its folder (``MNIST``, ``fer2013`` ...); None for the data set's own users, and those
            of MNIST where Decaf has none.
    """

    scheme: Literal["iid", "dirichlet", "shards", "composition"] = "iid"
    clients: int = 10
    examples_per_client: int | Sequence[int] | None = None
    alpha: float = 0.5
    shards_per_client: int = 2
    composition: str | Sequence[Sequence[float]] | None = None

    def __post_init__(self) -> None:
        """Refuses what no scheme can do.

        Raises:
            InputError: a number is not positive, or the scheme lacks what it needs, or would ignore what is given.
        """
        for name in ("clients", "shards_per_client"):
            if getattr(self, name) < 1:
                raise InputError(
                    expected=f"{name} of at least 1", found=str(getattr(self, name)), way_out="Give a larger number."
                )
        self._check_sizes()
        if self.scheme == "composition" and self.examples_per_client is None:
            raise InputError(
                expected="examples_per_client for the scheme composition",
                found="none",
                way_out="Decaf prints no sizes; those of its users on MNIST are multiples of 120 if their proportions "
                "are exact.",
            )

    def _check_sizes(self) -> None:
        sizes = self.examples_per_client
        if sizes is not None and min([sizes] if isinstance(sizes, int) else sizes, default=0) < FEWEST:
            raise InputError(
                expected=f"examples_per_client of at least {FEWEST}",
                found=str(sizes),
                way_out="Give each client more examples.",
            )
        if self.scheme == "shards" and sizes is not None:
            raise InputError(
                expected="no examples_per_client for shards",
                found=str(sizes),
                way_out="Shards deal everything out: leave it empty, or choose another scheme.",
            )
        if self.scheme == "iid" and not isinstance(sizes, int | None):
            raise InputError(
                expected="one number of examples_per_client for the scheme iid",
                found="a list",
                way_out="Choose the scheme composition with equal proportions.",
            )


def split_clients(pool: Pool, split: ClientSplit, *, seed: int, data: str) -> list[Tensor]:
    """Deals a pool.

    Args:
        pool: what there is.
        split: how.
        seed: of the draws.
        data: name of the data set, by which Decaf's compositions are found.

    Returns:
        For every client the numbers of its examples, no two with a group in common.

    Raises:
        InputError: see `datamodules.partition.deal`.
    """
    generator = generator_for(seed, "client split", PERSISTENT)
    if split.scheme == "shards":
        return deal_shards(pool, split.clients, split.shards_per_client, generator=generator)
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
    if table.dim() != 2 or not table.numel():
        raise InputError(
            expected="a composition with as many proportions in every row",
            found=str(composition),
            way_out="Give one row per client and one column per class.",
        )
    return table
