"""A toy of canaries under local DP, and its scores."""

import torch

from fedleak.attacks.declared_privacy.canary_bounds import CanaryBounds
from fedleak.core.attack import Attack
from fedleak.core.estimates import Scores
from fedleak.core.history import History
from fedleak.core.release import Release
from fedleak.core.view import CANARY_MINUS, CANARY_PLUS, CANARY_PSEUDONYMS

CLIP, SIZE = 1.0, 300
MU_OF_8 = 1.6658


def toy(
    *, count: int = 400, times: float = 1.0, minus: bool = False, rounds: int = 1, seed: int = 0
) -> tuple[History, dict[str, torch.Tensor]]:
    """Canaries under local DP of epsilon 8 in each of some rounds, with noise of `times` the declared scale."""
    draws = torch.Generator().manual_seed(seed)
    scale = 2 * CLIP / MU_OF_8
    coins = torch.randint(2, (count,), generator=draws) * 2 - 1
    plus = torch.randn(rounds, count, SIZE, generator=draws)
    other = torch.randn(rounds, count, SIZE, generator=draws) if minus else -plus
    worlds = [value * (CLIP / value.norm(dim=2, keepdim=True)) for value in (plus, other)]
    sent = torch.where(coins[None, :, None] > 0, worlds[0], worlds[1])
    deltas = sent + times * scale * torch.randn(rounds, count, SIZE, generator=draws)
    priors = {f"{CANARY_PLUS}w": 50 * plus.flatten(0, 1)} | (
        {f"{CANARY_MINUS}w": 50 * other.flatten(0, 1)} if minus else {}
    )
    view = History(
        round=0,
        pseudonyms=torch.arange(count).repeat(rounds),
        example_counts=torch.ones(count * rounds, dtype=torch.int64),
        deltas={"w": deltas.flatten(0, 1)},
        model={"w": torch.zeros(SIZE)},
        releases=(Release(clip=CLIP, noise_scale=scale, parameters=("w",)),),
        auxiliary={CANARY_PSEUDONYMS: torch.arange(count)},
        priors=priors,
        sent_in=torch.arange(rounds).repeat_interleave(count),
    )
    return view, {"coin": coins.repeat(rounds)}


def scored(view: History, truth: dict[str, torch.Tensor], attack: Attack | None = None) -> Scores:
    attack = attack or CanaryBounds()
    return attack(view, generator=torch.Generator().manual_seed(1)).score(view, truth)


def value(scores: Scores, name: str) -> float:
    return float(scores.metrics[name].mean())
