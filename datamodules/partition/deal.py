"""Who holds which examples: disjoint clients by composition, evenly, by Dirichlet's law or in shards.

No group of examples is with two clients. Every deal takes a `Pool`, which is in random order.
"""

import numpy as np
import torch
from torch import Tensor

from datamodules.partition.pool import Pool, group_begins, too_few
from protocol.errors import InputError

FEWEST = 2
"""Examples of a client: a single one is no proportion, and batch norm has nothing to compare it with."""


def deal_by_counts(pool: Pool, counts: Tensor) -> list[Tensor]:
    """Clients with given numbers of each class; what is left of a group that one of them began goes to nobody.

    Args:
        pool: what there is.
        counts: ``(C, K)`` int64.

    Returns:
        For every client the numbers of its examples, in random order.

    Raises:
        InputError: a class has fewer examples than are needed, or a client would hold one example.
    """
    if counts.dim() != 2 or counts.shape[1] != len(pool.class_names):
        raise InputError(
            expected=f"a composition of {len(pool.class_names)} classes",
            found=f"one of shape {tuple(counts.shape)}",
            way_out="Give one row per client and one column per class.",
        )
    client = torch.full((len(pool),), -1)
    for number in range(len(pool.class_names)):
        positions = (pool.labels == number).nonzero().flatten()
        client[positions], needed = _owners(pool.groups[positions], counts[:, number])
        if needed > len(positions):
            raise too_few(pool, number, needed=needed, there=len(positions), purpose="the clients")
    return _by_client(pool, client, len(counts))


def deal_evenly(pool: Pool, clients: int, size: int | None = None) -> list[Tensor]:
    """Clients whose examples are independent and identically distributed.

    Args:
        pool: what there is.
        clients: their number.
        size: examples of each; None deals everything out, in equal parts up to whole groups.

    Returns:
        For every client the numbers of its examples, in random order.

    Raises:
        InputError: there are fewer examples than are needed, or a client would hold one.
    """
    if size is None:
        return _by_client(pool, group_begins(pool.groups) * clients // max(len(pool), 1), clients)
    client, needed = _owners(pool.groups, torch.full((clients,), size))
    if needed > len(pool):
        raise InputError(
            expected=f"{needed} examples for {clients} clients of {size}",
            found=f"{len(pool)}",
            way_out="Give fewer clients, or fewer examples to each.",
        )
    return _by_client(pool, client, clients)


def deal_dirichlet(pool: Pool, clients: int, alpha: float, *, generator: torch.Generator) -> list[Tensor]:
    """All examples: of each class, a client gets the share that a symmetric Dirichlet law gives it (Yurochkin 2019).

    Args:
        pool: what there is.
        clients: their number.
        alpha: concentration; small for clients of few classes.
        generator: of the shares.

    Returns:
        For every client the numbers of its examples, in random order.

    Raises:
        InputError: alpha is not positive, or a client gets fewer than two examples.
    """
    shares = dirichlet_table(len(pool.class_names), clients, alpha, generator=generator)
    client = torch.zeros(len(pool), dtype=torch.int64)
    for number, share in enumerate(shares):
        positions = (pool.labels == number).nonzero().flatten()
        begins = (group_begins(pool.groups[positions]) + 0.5) / max(len(positions), 1)
        client[positions] = torch.searchsorted(share.cumsum(0), begins).clamp(max=clients - 1)
    return _by_client(pool, client, clients)


def deal_shards(pool: Pool, clients: int, shards_per_client: int, *, generator: torch.Generator) -> list[Tensor]:
    """All examples, sorted by class and cut into equal shards, some for every client (McMahan 2017, section 3).

    Args:
        pool: what there is.
        clients: their number.
        shards_per_client: shards of each (McMahan: 2).
        generator: deals the shards.

    Returns:
        For every client the numbers of its examples, in random order.

    Raises:
        InputError: a client gets fewer than two examples.
    """
    shards = clients * shards_per_client
    owner = torch.empty(shards, dtype=torch.int64)
    owner[torch.randperm(shards, generator=generator)] = torch.arange(shards) // shards_per_client
    order = pool.labels.argsort(stable=True)
    client = torch.empty_like(pool.labels)
    client[order] = owner[group_begins(pool.groups[order]) * shards // max(len(pool), 1)]
    return _by_client(pool, client, clients)


def dirichlet_table(rows: int, columns: int, alpha: float, *, generator: torch.Generator) -> Tensor:
    """``(rows, columns)`` float64 draws of a symmetric Dirichlet law.

    Raises:
        InputError: alpha is not positive.
    """
    if not 0 < alpha < float("inf"):
        raise InputError(expected="alpha above 0", found=str(alpha), way_out="0.1 is very uneven, 100 nearly even.")
    # numpy's draws, because torch's logarithms underflow at a small alpha and take no generator.
    seed = int(torch.randint(2**62, (), generator=generator))
    return torch.from_numpy(np.random.default_rng(seed).dirichlet(np.full(columns, alpha), rows))


def _owners(groups: Tensor, sizes: Tensor) -> tuple[Tensor, int]:
    """Deals runs of given sizes, every one from the beginning of a group.

    Returns:
        ``(n,)`` the run that each position is in, -1 for none, and how many positions are needed: more than n if
        there are too few.
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
    """For every client the numbers of its examples, in the order of the pool."""
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
