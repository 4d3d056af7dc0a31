"""Attributes of the people behind clients, such as their gender, and the people of whom the server knows them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedleak.core.errors import InputError, require
from fedleak.core.ranges import OpenUnitInterval, PositiveInt, check_fields
from fedleak.core.seeding import PERSISTENT, generator_for

UNKNOWN = -1
"""Value of an attribute that a data set does not give for a person."""


@dataclass(frozen=True, kw_only=True)
class Attributes:
    """Options of the attributes in a recording, for attacks that infer them; without them, a recording holds none.

    Attributes:
        names: which attributes; None for all that the data set has.
        known: share of the people whose attributes the server knows, below 1, or the number of these people, who are
            drawn at random. They are its auxiliary data; attacks are scored on the others.
        shuffled: control: the attributes are exchanged at random among all people, before the known ones are drawn.
    """

    names: Sequence[str] | None = None
    known: OpenUnitInterval | PositiveInt = 0.5
    shuffled: bool = False

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class People:
    """The people behind the clients.

    Attributes:
        values: by attribute, in the order of the names, ``(C,)`` int64 value of each client from 0; `UNKNOWN` if the
            data set does not give it.
        known: ``(C,)`` True for those whose attributes the server knows.
    """

    values: Mapping[str, Tensor]
    known: Tensor

    @property
    def table(self) -> Tensor:
        """``(C, A)`` values of all attributes, which are the ground truth."""
        return torch.stack(list(self.values.values()), dim=1)


def draw_people(held: Mapping[str, Tensor], persons: Tensor, options: Attributes, *, seed: int) -> People:
    """The people of a data set, with the attributes and the known share of the options.

    Args:
        held: ``(C,)`` by attribute, of every client.
        persons: ``(C,)`` number of the person behind each client; a person with several clients is known with all of
            them or with none.
        options: which attributes, and how many people are known.
        seed: seed of the draws.
    """
    names = sorted(held if options.names is None else options.names)
    absent = next((name for name in names if name not in held), None)
    require(
        names and absent is None, f"attributes among {', '.join(sorted(held))}", absent, "Correct attributes.names."
    )
    _, first, place = np.unique(persons.numpy(), return_index=True, return_inverse=True)
    count = len(first)
    drawn = torch.randperm(count, generator=generator_for(seed, "known people", PERSISTENT))
    known = torch.zeros(count, dtype=torch.bool)
    number = options.known if isinstance(options.known, int) else round(options.known * count)
    known[drawn[:number]] = True
    if not 0 < int(known.sum()) < count:
        raise InputError(
            expected="a person whose attributes the server knows, and another",
            found=f"{int(known.sum())} known of {count} people",
            way_out="Take more clients, or another attributes.known.",
        )
    order = torch.arange(count)
    if options.shuffled:
        order = torch.randperm(count, generator=generator_for(seed, "exchanged attributes", PERSISTENT))
    source, own = torch.from_numpy(first)[order], torch.from_numpy(place.reshape(-1))
    return People({name: held[name][source][own] for name in names}, known[own])


def bands(ages: Tensor, limits: Sequence[int]) -> Tensor:
    """``(C,)`` number of the age band of each age ``(C,)``: how many of the ascending limits it reaches.

    >>> bands(torch.tensor([-1, 20, 35, 46]), (35, 46)).tolist()
    [-1, 0, 1, 2]
    """
    return torch.where(ages < 0, UNKNOWN, torch.bucketize(ages, torch.tensor(limits), right=True))
