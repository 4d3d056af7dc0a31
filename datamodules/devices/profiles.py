"""Profile prior: the adversary knows other people's examples of some kind, and looks for devices that fit."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.core.errors import require
from fedleak.core.seeding import PERSISTENT, generator_for


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
        require(
            self.terms and not isinstance(self.terms, str),
            f"a list of words or labels of the profile {self.name}",
            repr(self.terms),
            "Give some.",
        )


def with_profiles(member: Tensor, names: Sequence[str], *, seed: int) -> tuple[Tensor, ...]:
    """Background examples on the device of every profile, and last on one of any examples, for contrast.

    The latter has one of P + 1 shares of the background, drawn at random. An example of several profiles goes to one of
    them, drawn at random, so that no example is on two devices.

    Args:
        member: ``(P, M)`` True for the background examples of each profile.
        names: names of the P profiles.
        seed: seed of the draw.

    Returns:
        Ascending positions in the background, by device.
    """
    count = member.shape[1]
    generator = generator_for(seed, "profiles", PERSISTENT)
    # Of its profiles, an example goes to the one with the largest random weight; -1 stands for none.
    draw = torch.rand(len(names), count, generator=generator)
    weight = torch.where(member, draw, -1.0)
    device_of_example = torch.where(weight.amax(0) >= 0, weight.argmax(0), -1)
    # The last device takes one of P + 1 shares of all examples, whatever their profiles are.
    contrast = torch.randperm(count, generator=generator)[: count // (len(names) + 1)]
    device_of_example[contrast] = len(names)
    parts = []
    for number, name in enumerate([*names, "of no kind"]):
        part = (device_of_example == number).nonzero().flatten()
        require(
            len(part),
            f"examples of the profile {name}",
            f"none among the background's {count}",
            "Give it other words or labels; words must be in the vocabulary.",
        )
        parts.append(part)
    return tuple(parts)


def profile_fit(anonymous: Sequence[Tensor], member: Tensor) -> Tensor:
    """``(U, P)`` share of each profile among the examples of every anonymous device, from ``(P, N)`` `member`."""
    return torch.stack([member[:, part].double().mean(1) for part in anonymous])
