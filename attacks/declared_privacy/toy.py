"""Canaries of an auditor, who send one of two opposite updates under local differential privacy."""

import torch
from torch import Tensor
from torch.nn import functional

from fedleak.core.history import History
from fedleak.core.release import Release
from fedleak.core.seeding import generator_for
from fedleak.core.view import CANARY_PLUS, CANARY_PSEUDONYMS

CANARIES, PARAMETERS = 400, 300
CLIP = 1.0
NOISE_SCALE = 1.2
"""Standard deviation of the noise: two updates that differ by 2 are about 1.7 standard deviations apart."""


def toy() -> tuple[History, dict[str, Tensor]]:
    """Clipped and noised updates with the noise that they declare, and the ``coin (V,)``, 1 or -1, of each canary."""
    generator = generator_for(0, "declared privacy toy")
    coins = torch.randint(2, (CANARIES,), generator=generator) * 2 - 1
    plus = torch.randn(CANARIES, PARAMETERS, generator=generator)
    noise = NOISE_SCALE * torch.randn(CANARIES, PARAMETERS, generator=generator)
    sent = coins[:, None] * CLIP * functional.normalize(plus) + noise
    view = History(
        round=0,
        pseudonyms=torch.arange(CANARIES),
        example_counts=torch.ones(CANARIES, dtype=torch.int64),
        deltas={"weight": sent},
        model={"weight": torch.zeros(PARAMETERS)},
        releases=(Release(clip=CLIP, noise_scale=NOISE_SCALE, parameters=("weight",)),),
        auxiliary={CANARY_PSEUDONYMS: torch.arange(CANARIES)},
        priors={f"{CANARY_PLUS}weight": plus},
        sent_in=torch.zeros(CANARIES, dtype=torch.int64),
    )
    return view, {"coin": coins}
