"""Bounds of what updates say of clicks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from attacks.ranking.channel_bounds import capacity_bits, entropy_bits
from attacks.ranking.lists import ranked_lists
from attacks.ranking.priors import log_prior
from evaluation.runner import Evaluation
from evaluation.scores import concat
from experiments.after.step import AfterStep
from modules.learners.recorded_learner import recorded_learner
from protocol.simulators import RankingSimulator
from protocol.view import ServerView

if TYPE_CHECKING:
    from experiments.cell_run import CellRun


@dataclass(frozen=True, kw_only=True)
class Bounds(AfterStep):
    """Bits of the cascade model's clicks, and bits that an update can carry where it is clipped and noisy.

    Rows ``click-entropy`` and ``capacity-bound`` of the metric ``bits``, for each client.
    """

    name: ClassVar[str] = "bounds"
    metrics: ClassVar[tuple[str, ...]] = ("bits",)

    def __call__(self, run: "CellRun", evaluation: Evaluation) -> Evaluation:
        views = run.recording.views(victims_per_view=256, learner=recorded_learner(run.recording))
        rows = [
            run.scores(name, {"bits": values}, victims=view.pseudonyms, round=view.round, items=view.served_mask.sum(1))
            for view in views
            for name, values in bits(view).items()
        ]
        evaluation.scores = concat([evaluation.scores, run.of_people(concat(rows))])
        return evaluation


def bits(view: ServerView) -> Mapping[str, Tensor]:
    """By name ``(V,)`` bits.

    Args:
        view: of clients that click in ranked lists.

    Raises:
        ViewError: the learner does not rank.
    """
    entropy = entropy_bits(log_prior("cascade", ranked_lists(view).mask, view.require(RankingSimulator)))
    released = next(iter(view.model))
    clip, noise = view.clip(released), view.noise_scale(released)
    if clip is None or not noise:
        return {"click-entropy": entropy}
    numbers = sum(value.numel() for value in view.model.values())
    capacity = capacity_bits(clip=clip, noise_scale=noise, dimensions=numbers)
    return {"click-entropy": entropy, "capacity-bound": torch.full_like(entropy, capacity)}
