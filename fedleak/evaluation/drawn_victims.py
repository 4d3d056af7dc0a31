"""Clients that are drawn for an audit of some of them: at random, and of a very large recording by strata."""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from fedleak.core.history import History
from fedleak.recordings.recording import Recording

MANY = 2**16
"""Clients, or messages, above which strata are formed, and a limit on victims limits attacks on all messages too."""
_STRATA = 10


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
        Cochran, "Sampling Techniques", 3rd edition, 1977, section 5.6.
    """
    numbers = [number for number in recording.rounds if rounds is None or number in rounds]
    clients = sorted({name for number in numbers for name in recording.pseudonyms(number)})
    ordered = in_random_order(clients, generator)
    if len(ordered) <= MANY:
        return set(ordered[:victims])
    examples = dict[int, int]()
    for number in numbers:
        examples = recording.example_counts(number) | examples
    return {ordered[place] for place in by_strata(torch.tensor([examples[name] for name in ordered]), victims).tolist()}


def by_strata(sizes: Tensor, wanted: int) -> Tensor:
    """``(W,)`` places of a sample with the same share of each stratum; ``sizes (N,)`` are in random order.

    >>> by_strata(torch.arange(100), 10).tolist()
    [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]
    """
    edges = torch.quantile(sizes.double(), torch.linspace(0, 1, _STRATA + 1, dtype=torch.float64)[1:-1])
    stratum = torch.searchsorted(torch.unique(edges), sizes.double(), right=True)
    count = stratum.bincount()
    exact = wanted * count.double() / len(sizes)
    each = exact.floor().long()
    each[(exact - each).argsort(descending=True, stable=True)[: min(wanted, len(sizes)) - int(each.sum())]] += 1
    parts = [(stratum == number).nonzero().flatten()[:most] for number, most in enumerate(each.tolist())]
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
