"""What stands beside a table of attacks on clicks: the bits an update can carry, and the bits of the clicks."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from attacks.base import ServerView
from attacks.interactions.channel_bounds import capacity_bits, entropy_bits
from attacks.interactions.list_priors import log_prior
from attacks.interactions.lists import ranked_lists
from datamodules.deltas import Recording
from modules.registry import learner_from
from reports.results import VictimRow


def bound_rows(recording: Recording, *, setting: Mapping[str, Any], seed: int) -> Iterator[VictimRow]:
    """Rows ``click-entropy`` of the cascade model, and ``capacity-bound`` where updates are clipped and noisy.

    Args:
        recording: of a learner that ranks.
        setting: the cell that the rows belong to.
        seed: seed of the training.
    """
    for view in recording.views(victims_per_view=256, learner=learner_from(recording.manifest.learner)):
        items = view.served_mask.sum(1).tolist()
        for name, values in _bits(view).items():
            for victim, documents, value in zip(view.pseudonyms.tolist(), items, values.tolist(), strict=True):
                yield VictimRow(name, dict(setting), seed, view.round, victim, documents, 0, "bits", value, 0.0)


def _bits(view: ServerView) -> dict[str, Tensor]:
    entropy = entropy_bits(log_prior("cascade", ranked_lists(view).mask, view.ranker()))
    released = next(iter(view.model))
    clip, noise = view.clip(released), view.noise_scale(released)
    if clip is None or not noise:
        return {"click-entropy": entropy}
    numbers = sum(value.numel() for value in view.model.values())
    capacity = capacity_bits(clip=clip, noise_scale=noise, dimensions=numbers)
    return {"click-entropy": entropy, "capacity-bound": torch.full_like(entropy, capacity)}
