"""Secure sums of clipped updates with noise, of which some participants add none."""

import torch

from fedleak.core.history import History
from fedleak.core.release import Release
from fedleak.defenses.secure_aggregation import SecureSum
from tests.attacks.runs import plain_view

CLIP = 1.0


def sums_of(
    generator: torch.Generator,
    *,
    participants: int = 10,
    silent: int = 0,
    sums: int = 1,
    targets: int = 1,
    noise: float = 0.5,
    rounds: int = 1,
    numbers: int = 5_000,
) -> History:
    """Sums of each round, listed once for each of `targets` participants; `silent` of each sum add no noise."""
    updates = torch.randn(rounds * sums, participants, numbers, generator=generator)
    updates *= CLIP / updates.norm(dim=2, keepdim=True)
    drawn = noise * torch.randn(updates.shape, generator=generator)
    drawn[:, :silent] = 0
    whole = (updates + drawn).sum(1).repeat_interleave(targets, 0)
    deltas = {"w": whole[:, : numbers // 2], "b": whole[:, numbers // 2 :]}
    names = tuple(deltas)
    own = Release(clip=CLIP, noise_scale=noise, parameters=names)
    others = SecureSum(participants=participants, targets=targets, noise_scale=noise).releases(names)
    model = {name: torch.ones(value.shape[1]) for name, value in deltas.items()}
    view = plain_view(len(whole), deltas=deltas, model=model, releases=(own, *others))
    sent_in = torch.arange(rounds).repeat_interleave(sums * targets)
    pseudonyms = torch.arange(sums * targets).repeat(rounds) + 100
    return History(**view.common() | {"pseudonyms": pseudonyms}, sent_in=sent_in)
