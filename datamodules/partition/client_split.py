"""Assignment of examples to disjoint clients: by composition, evenly, by Dirichlet draws, in shards, or by groups.

No two clients share a group. Every deal gives the numbers of the examples of every client, in random order, and raises
an InputError if there are too few examples, also if a client would hold only one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedleak.core.errors import InputError, require
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.datamodules.partition.pool import Pool, group_begins, too_few
from fedleak.training.class_proportions import composition_counts, decaf_composition, decaf_compositions

FEWEST = 2
"""Least number of examples of a client; batch normalisation needs two."""
_TEN_CLASSES = "MNIST"
"""Data set whose composition in Decaf other data sets of ten classes use."""


@dataclass(frozen=True, kw_only=True)
class ClientSplit:
    """Options of the assignment of examples to clients; those of other schemes than the chosen one are not used.

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
        require(0 < self.alpha < float("inf"), "alpha above 0", self.alpha, "0.1 is very uneven, 100 nearly even.")
        if self.composition is not None:
            _composition_table(self.composition)
        sizes = self.examples_per_client
        if sizes is not None:
            smallest = sizes if isinstance(sizes, int) else min(sizes, default=0)
            require(
                smallest >= FEWEST,
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
    # With given sizes, a client's classes are what is drawn or tabulated: a row of proportions for each client.
    if split.scheme == "dirichlet":
        proportions = dirichlet_table(split.clients, len(pool.class_names), split.alpha, generator=generator)
    else:
        tabulated = data if data in set(decaf_compositions()["data"]) else _TEN_CLASSES
        proportions = _composition_table(split.composition or tabulated)
    assert split.examples_per_client is not None
    return deal_by_counts(pool, composition_counts(proportions, split.examples_per_client))


def _composition_table(composition: str | Sequence[Sequence[float]]) -> Tensor:
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


def deal_by_counts(pool: Pool, counts: Tensor) -> list[Tensor]:
    """Clients with given numbers of each class; the rest of a group of which one client has a part is not assigned."""
    require(
        counts.dim() == 2 and counts.shape[1] == len(pool.class_names),
        f"a composition of {len(pool.class_names)} classes",
        f"one of shape {tuple(counts.shape)}",
        "Give one row per client and one column per class.",
    )
    # Class after class, clients take the next examples of the pool; what nobody takes stays at -1.
    client = torch.full((len(pool),), -1)
    for number in range(len(pool.class_names)):
        positions = (pool.labels == number).nonzero().flatten()
        client[positions], needed = _owners(pool.groups[positions], counts[:, number])
        if needed > len(positions):
            raise too_few(pool, number, needed=needed, there=len(positions), purpose="the clients")
    return _by_client(pool, client, len(counts))


def deal_evenly(pool: Pool, clients: int, size: int | None = None) -> list[Tensor]:
    """Clients with independent and identically distributed examples: `size` of each, or None for all in equal parts."""
    if size is None:
        # The example at position i goes to client i * C / N, with its whole group.
        client = group_begins(pool.groups) * clients // max(len(pool), 1)
        return _by_client(pool, client, clients)
    client, needed = _owners(pool.groups, torch.full((clients,), size))
    require(
        needed <= len(pool),
        f"{needed} examples for {clients} clients of {size}",
        len(pool),
        "Give fewer clients, or fewer examples to each.",
    )
    return _by_client(pool, client, clients)


def deal_dirichlet(pool: Pool, clients: int, alpha: float, *, generator: torch.Generator) -> list[Tensor]:
    """All examples, the clients' shares of each class drawn from a Dirichlet distribution (Yurochkin 2019)."""
    shares = dirichlet_table(len(pool.class_names), clients, alpha, generator=generator)
    client = torch.zeros(len(pool), dtype=torch.int64)
    for number, share in enumerate(shares):
        positions = (pool.labels == number).nonzero().flatten()
        # Examples lie in the middle of intervals of length 1 / n, and clients' shares end at their cumulated sums.
        midpoints = (group_begins(pool.groups[positions]) + 0.5) / max(len(positions), 1)
        owners = torch.searchsorted(share.cumsum(0), midpoints)
        # Rounding may leave the last sum below 1.
        client[positions] = owners.clamp(max=clients - 1)
    return _by_client(pool, client, clients)


def deal_shards(pool: Pool, clients: int, shards_per_client: int, *, generator: torch.Generator) -> list[Tensor]:
    """All examples, sorted by class and cut into equal shards, several per client (McMahan 2017, section 3)."""
    shards = clients * shards_per_client
    owner_of_shard = torch.empty(shards, dtype=torch.int64)
    owner_of_shard[torch.randperm(shards, generator=generator)] = torch.arange(shards) // shards_per_client
    # Sorted by class, the example at position i lies in shard i * S / N, with its whole group.
    order = pool.labels.argsort(stable=True)
    shard = group_begins(pool.groups[order]) * shards // max(len(pool), 1)
    client = torch.empty_like(pool.labels)
    client[order] = owner_of_shard[shard]
    return _by_client(pool, client, clients)


def deal_groups(pool: Pool, clients: int) -> list[Tensor]:
    """One group for each client, among the groups of at least `FEWEST` examples."""
    # Groups lie together in a pool; each ends where the next one begins.
    begins = (group_begins(pool.groups) == torch.arange(len(pool))).nonzero().flatten()
    sizes = begins.diff(append=torch.tensor([len(pool)]))
    groups = torch.split(pool.examples, sizes.tolist())
    large_groups = [group for group in groups if len(group) >= FEWEST]
    require(
        clients <= len(large_groups),
        f"{clients} groups of at least {FEWEST} examples for as many clients",
        len(large_groups),
        "Take fewer clients.",
    )
    return large_groups[:clients]


def dirichlet_table(rows: int, columns: int, alpha: float, *, generator: torch.Generator) -> Tensor:
    """``(rows, columns)`` float64 draws from a symmetric Dirichlet distribution of concentration ``alpha > 0``."""
    # numpy's draws, because torch's logarithms underflow at a small alpha and take no generator.
    seed = int(torch.randint(2**62, (), generator=generator))
    draws = np.random.default_rng(seed)
    concentrations = np.full(columns, alpha)
    return torch.from_numpy(draws.dirichlet(concentrations, rows))


def _owners(groups: Tensor, sizes: Tensor) -> tuple[Tensor, int]:
    """Assigns runs of given sizes, each from the beginning of a group.

    Returns:
        ``(n,)`` run of each position, -1 for none, and the number of positions needed, above n if there are too few.
    """
    starts = (groups.diff(prepend=groups[:1] - 1) != 0).nonzero().flatten().numpy()
    owners = torch.full((len(groups),), -1)
    begin = 0
    needed = 0
    for owner, size in enumerate(sizes.tolist()):
        if not size:
            continue
        needed = begin + size
        owners[begin:needed] = owner
        # The next run begins with the next group; where there is none, what it needs is more than there is.
        following = np.searchsorted(starts, needed)
        begin = max(needed, len(groups))
        if following < len(starts):
            begin = int(starts[following])
    return owners, needed


def _by_client(pool: Pool, client: Tensor, clients: int) -> list[Tensor]:
    """Numbers of the examples of every client, in the order of the pool."""
    sizes = client[client >= 0].bincount(minlength=clients)
    if int(sizes.min()) < FEWEST:
        poorest = int(sizes.argmin())
        raise InputError(
            expected=f"clients of at least {FEWEST} examples",
            found=f"client {poorest} with {int(sizes[poorest])}",
            way_out="Give each client more examples, or take fewer clients or a larger alpha.",
        )
    # Unassigned examples, of client -1, come first and are left out.
    unassigned = int((client < 0).sum())
    order = client.argsort(stable=True)[unassigned:]
    return list(torch.split(pool.examples[order], sizes.tolist()))
