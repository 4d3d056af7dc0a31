"""The profile prior: the adversary has no user's data, but examples of a kind, and looks for devices that fit."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from protocol.errors import InputError
from protocol.seeding import PERSISTENT, generator_for


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A kind of examples, e.g. handguns (section 6.1.1, figure 3).

    Attributes:
        name: for the report.
        terms: an example is of the profile when it holds one of these: words of text, or names of labels.
    """

    name: str
    terms: Sequence[str]

    def __post_init__(self) -> None:
        """Refuses a profile of nothing.

        Raises:
            InputError: it has no terms.
        """
        if not self.terms or isinstance(self.terms, str):
            raise InputError(
                expected=f"a list of words or labels of the profile {self.name}",
                found=repr(self.terms),
                way_out="Give some.",
            )


def with_profiles(known: Sequence[Tensor], member: Tensor, names: Sequence[str], *, seed: int) -> tuple[Tensor, ...]:
    """For every profile the examples of its device: those of users' known halves that are of it.

    What is of several profiles goes to one of them, drawn at random, so that no example is on two devices.

    Args:
        known: for each user what the adversary could know.
        member: ``(P, N)`` bool.
        names: of the P profiles.
        seed: of the draw.

    Raises:
        InputError: of a profile there is nothing.
    """
    pool = torch.cat(list(known))
    draw = torch.rand(member.shape[0], len(pool), generator=generator_for(seed, "profiles", PERSISTENT))
    weight = torch.where(member[:, pool], draw, -1.0)
    chosen = torch.where(weight.amax(0) >= 0, weight.argmax(0), -1)
    parts = tuple(pool[chosen == number].sort().values for number in range(len(names)))
    for name, part in zip(names, parts, strict=True):
        if not len(part):
            raise InputError(
                expected=f"examples of the profile {name}",
                found=f"none among the {len(pool)} that the adversary could know",
                way_out="Give it other words or labels; words must be in the vocabulary.",
            )
    return parts


def profile_fit(anonymous: Sequence[Tensor], member: Tensor) -> Tensor:
    """``(U, P)`` share of every anonymous device's examples that are of each profile: the truth to look for.

    Args:
        anonymous: for each user the examples of its anonymous device.
        member: ``(P, N)`` bool.
    """
    return torch.stack([member[:, part].double().mean(1) for part in anonymous])
