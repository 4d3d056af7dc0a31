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


def draw_people(attributes: Mapping[str, Tensor], persons: Tensor, options: Attributes, *, seed: int) -> People:
    """The people of a data set, with the attributes and the known share of the options.

    Args:
        attributes: ``(C,)`` by attribute, of every client.
        persons: ``(C,)`` number of the person behind each client; a person with several clients is known with all of
            them or with none.
        options: which attributes, and how many people are known.
        seed: seed of the draws.
    """
    names = sorted(attributes if options.names is None else options.names)
    absent = next((name for name in names if name not in attributes), None)
    require(
        names and absent is None,
        f"attributes among {', '.join(sorted(attributes))}",
        absent,
        "Correct attributes.names.",
    )
    # `first` is a client of each person, `person_index` the person of each client.
    _, first, person_index = np.unique(persons.numpy(), return_index=True, return_inverse=True)
    count = len(first)
    # People are known at random, whole persons at a time.
    drawn = torch.randperm(count, generator=generator_for(seed, "known people", PERSISTENT))
    known_people = torch.zeros(count, dtype=torch.bool)
    # A share of the people, or their number.
    number = options.known if isinstance(options.known, int) else round(options.known * count)
    known_people[drawn[:number]] = True
    if not 0 < int(known_people.sum()) < count:
        raise InputError(
            expected="a person whose attributes the server knows, and another",
            found=f"{int(known_people.sum())} known of {count} people",
            way_out="Take more clients, or another attributes.known.",
        )
    order = torch.arange(count)
    if options.shuffled:
        order = torch.randperm(count, generator=generator_for(seed, "exchanged attributes", PERSISTENT))
    # Each person has the attributes of another person's first client, or of its own if they are not shuffled.
    source = torch.from_numpy(first)[order]
    person = torch.from_numpy(person_index.reshape(-1))
    values = {name: attributes[name][source][person] for name in names}
    return People(values, known_people[person])


def bands(ages: Tensor, limits: Sequence[int]) -> Tensor:
    """``(C,)`` number of the age band of each age ``(C,)``: how many of the ascending limits it reaches.

    >>> bands(torch.tensor([-1, 20, 35, 46]), (35, 46)).tolist()
    [-1, 0, 1, 2]
    """
    return torch.where(ages < 0, UNKNOWN, torch.bucketize(ages, torch.tensor(limits), right=True))
