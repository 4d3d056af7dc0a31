"""Profile prior: the adversary knows examples of some kind instead of users' data, and looks for devices that fit."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from protocol.errors import require
from protocol.seeding import PERSISTENT, generator_for


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A kind of examples, e.g. handguns (deanonymization, section 6.1.1, figure 3).

    Attributes:
        name: name in reports.
        terms: an example that has one of these words or labels belongs to the profile.
    """

    name: str
    terms: Sequence[str]

    def __post_init__(self) -> None:
        right = self.terms and not isinstance(self.terms, str)
        require(right, f"a list of words or labels of the profile {self.name}", repr(self.terms), "Give some.")


def with_profiles(known: Sequence[Tensor], member: Tensor, names: Sequence[str], *, seed: int) -> tuple[Tensor, ...]:
    """Examples on the device of every profile, from the users' known halves.

    An example of several profiles goes to one of them, drawn at random, so that no example is on two devices.

    Args:
        known: examples of each user that the adversary could know.
        member: ``(P, N)`` True for the examples of each profile.
        names: names of the P profiles.
        seed: seed of the draw.

    Raises:
        InputError: a profile has no example.
    """
    pool = torch.cat(list(known))
    draw = torch.rand(member.shape[0], len(pool), generator=generator_for(seed, "profiles", PERSISTENT))
    weight = torch.where(member[:, pool], draw, -1.0)
    chosen = torch.where(weight.amax(0) >= 0, weight.argmax(0), -1)
    parts = tuple(pool[chosen == number].sort().values for number in range(len(names)))
    for name, part in zip(names, parts, strict=True):
        found = f"none among the {len(pool)} that the adversary could know"
        way_out = "Give it other words or labels; words must be in the vocabulary."
        require(len(part), f"examples of the profile {name}", found, way_out)
    return parts


def profile_fit(anonymous: Sequence[Tensor], member: Tensor) -> Tensor:
    """``(U, P)`` share of each profile among the examples of every anonymous device, from ``(P, N)`` `member`."""
    return torch.stack([member[:, part].double().mean(1) for part in anonymous])
