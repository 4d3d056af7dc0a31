"""Clients that are drawn for an audit of some of them: at random, and of a very large recording by strata."""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from fedleak.core.history import History
from fedleak.recordings.recording import Recording

MANY = 2**16
"""Clients, or messages, above which strata are formed, and a limit on victims limits attacks on all messages too."""
_STRATA = 10
"""Strata by the number of examples, of about as many clients each."""


def in_random_order(clients: Sequence[int], generator: Generator) -> list[int]:
    """Clients in a random order."""
    return [clients[int(position)] for position in torch.randperm(len(clients), generator=generator)]


def drawn_victims(
    recording: Recording, victims: int, *, generator: Generator, rounds: Sequence[int] | None = None
) -> set[int]:
    """Pseudonyms of clients drawn at random; of more than `MANY`, as many from each tenth by reported examples.

    The clients are those of some rounds, by default of all.

    Proportional strata make the number of examples of the drawn clients distributed as that of all, so that a mean over
    them varies less than with a simple random sample.

    References:
        [Cochran77], section 5.6.
    """
    numbers = [number for number in recording.rounds if rounds is None or number in rounds]
    senders: set[int] = set()
    for number in numbers:
        senders.update(recording.pseudonyms(number))
    ordered = in_random_order(sorted(senders), generator)
    if len(ordered) <= MANY:
        return set(ordered[:victims])
    # The example count of a client's first round.
    examples: dict[int, int] = {}
    for number in numbers:
        examples = recording.example_counts(number) | examples
    sizes = torch.tensor([examples[name] for name in ordered])
    return {ordered[position] for position in by_strata(sizes, victims).tolist()}


def by_strata(sizes: Tensor, wanted: int) -> Tensor:
    """``(W,)`` places of a sample with the same share of each stratum; ``sizes (N,)`` are in random order.

    >>> by_strata(torch.arange(100), 10).tolist()
    [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]
    """
    # Edges at the tenths of the sizes, where these differ.
    tenths = torch.linspace(0, 1, _STRATA + 1, dtype=torch.float64)[1:-1]
    edges = torch.unique(torch.quantile(sizes.double(), tenths))
    stratum = torch.searchsorted(edges, sizes.double(), right=True)
    # Each stratum's share of the sample, rounded down; those with the largest remainders get one more.
    exact = wanted * stratum.bincount().double() / len(sizes)
    of_stratum = exact.floor().long()
    lacking = min(wanted, len(sizes)) - int(of_stratum.sum())
    by_remainder = (exact - of_stratum).argsort(descending=True, stable=True)
    of_stratum[by_remainder[:lacking]] += 1
    parts = []
    for number, most in enumerate(of_stratum.tolist()):
        members = (stratum == number).nonzero().flatten()
        parts.append(members[:most])
    return torch.cat(parts)


def messages_of_few(view: History, people: Tensor, victims: int, *, generator: Generator) -> History:
    """The messages of so many people, drawn at random.

    Args:
        view: all messages.
        people: ``(V,)`` the person who sent each, or pseudonyms where that is unknown.
        victims: number of people.
        generator: source of the draw.
    """
    distinct = torch.unique(people)
    drawn = distinct[torch.randperm(len(distinct), generator=generator)[:victims]]
    return view.select(torch.isin(people, drawn).nonzero().flatten())
