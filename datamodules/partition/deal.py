"""Assignment of the examples of a `Pool` to disjoint clients: by composition, evenly, by Dirichlet draws, in shards.

No two clients share a group. Every function returns the numbers of the examples of every client, in random order, and
raises an InputError if there are too few examples, also if a client would hold only one.
"""

import numpy as np
import torch
from torch import Tensor

from datamodules.partition.pool import Pool, group_begins, too_few
from protocol.errors import InputError, require

FEWEST = 2
"""Least number of examples of a client; batch normalisation needs two."""


def deal_by_counts(pool: Pool, counts: Tensor) -> list[Tensor]:
    """Clients with given numbers of each class; the rest of a group of which one client has a part is not assigned."""
    require(
        counts.dim() == 2 and counts.shape[1] == len(pool.class_names),
        f"a composition of {len(pool.class_names)} classes",
        f"one of shape {tuple(counts.shape)}",
        "Give one row per client and one column per class.",
    )
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
        return _by_client(pool, group_begins(pool.groups) * clients // max(len(pool), 1), clients)
    client, needed = _owners(pool.groups, torch.full((clients,), size))
    expected = f"{needed} examples for {clients} clients of {size}"
    require(needed <= len(pool), expected, len(pool), "Give fewer clients, or fewer examples to each.")
    return _by_client(pool, client, clients)


def deal_dirichlet(pool: Pool, clients: int, alpha: float, *, generator: torch.Generator) -> list[Tensor]:
    """All examples, the clients' shares of each class drawn from a Dirichlet distribution (Yurochkin 2019)."""
    shares = dirichlet_table(len(pool.class_names), clients, alpha, generator=generator)
    client = torch.zeros(len(pool), dtype=torch.int64)
    for number, share in enumerate(shares):
        positions = (pool.labels == number).nonzero().flatten()
        begins = (group_begins(pool.groups[positions]) + 0.5) / max(len(positions), 1)
        client[positions] = torch.searchsorted(share.cumsum(0), begins).clamp(max=clients - 1)
    return _by_client(pool, client, clients)


def deal_shards(pool: Pool, clients: int, shards_per_client: int, *, generator: torch.Generator) -> list[Tensor]:
    """All examples, sorted by class and cut into equal shards, several per client (McMahan 2017, section 3)."""
    shards = clients * shards_per_client
    owner = torch.empty(shards, dtype=torch.int64)
    owner[torch.randperm(shards, generator=generator)] = torch.arange(shards) // shards_per_client
    order = pool.labels.argsort(stable=True)
    client = torch.empty_like(pool.labels)
    client[order] = owner[group_begins(pool.groups[order]) * shards // max(len(pool), 1)]
    return _by_client(pool, client, clients)


def deal_groups(pool: Pool, clients: int) -> list[Tensor]:
    """One group for each client, among the groups of at least `FEWEST` examples."""
    begins = (group_begins(pool.groups) == torch.arange(len(pool))).nonzero().flatten()
    parts = torch.split(pool.examples, begins.diff(append=torch.tensor([len(pool)])).tolist())
    large = [part for part in parts if len(part) >= FEWEST]
    expected = f"{clients} groups of at least {FEWEST} examples for as many clients"
    require(clients <= len(large), expected, len(large), "Take fewer clients.")
    return large[:clients]


def dirichlet_table(rows: int, columns: int, alpha: float, *, generator: torch.Generator) -> Tensor:
    """``(rows, columns)`` float64 draws from a symmetric Dirichlet distribution."""
    require(0 < alpha < float("inf"), "alpha above 0", alpha, "0.1 is very uneven, 100 nearly even.")
    # numpy's draws, because torch's logarithms underflow at a small alpha and take no generator.
    seed = int(torch.randint(2**62, (), generator=generator))
    return torch.from_numpy(np.random.default_rng(seed).dirichlet(np.full(columns, alpha), rows))


def _owners(groups: Tensor, sizes: Tensor) -> tuple[Tensor, int]:
    """Assigns runs of given sizes, each from the beginning of a group.

    Returns:
        ``(n,)`` run of each position, -1 for none, and the number of positions needed, above n if there are too few.
    """
    starts = (groups.diff(prepend=groups[:1] - 1) != 0).nonzero().flatten().numpy()
    owners, begin, needed = torch.full((len(groups),), -1), 0, 0
    for owner, size in enumerate(sizes.tolist()):
        if not size:
            continue
        needed = begin + size
        owners[begin:needed] = owner
        following = np.searchsorted(starts, needed)
        begin = int(starts[following]) if following < len(starts) else max(needed, len(groups))
    return owners, needed


def _by_client(pool: Pool, client: Tensor, clients: int) -> list[Tensor]:
    """Numbers of the examples of every client, in the order of the pool."""
    sizes = client[client >= 0].bincount(minlength=clients)
    if int(sizes.min()) < FEWEST:
        poor = int(sizes.argmin())
        raise InputError(
            expected=f"clients of at least {FEWEST} examples",
            found=f"client {poor} with {int(sizes[poor])}",
            way_out="Give each client more examples, or take fewer clients or a larger alpha.",
        )
    order = client.argsort(stable=True)[int((client < 0).sum()) :]
    return list(torch.split(pool.examples[order], sizes.tolist()))
