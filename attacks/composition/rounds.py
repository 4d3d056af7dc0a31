"""Single-round estimates of a composition, and several rounds of the same victims together."""

import abc
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from attacks.base import Attack, CompositionEstimate, ServerView, ViewError

Rounds = Literal["last", "all"]


class CompositionAttack(Attack):
    """An attack that estimates every round by itself.

    Args:
        rounds: ``last`` for the view's own round, ``all`` to combine it with the earlier ones in the view.
    """

    estimates = CompositionEstimate

    def __init__(self, *, rounds: Rounds = "last") -> None:
        if rounds not in ("last", "all"):
            raise ValueError(f"expected rounds last or all, got {rounds!r}")
        self.rounds = rounds

    def run(self, view: ServerView, *, generator: torch.Generator) -> CompositionEstimate:
        """See `Attack.run`."""
        if self.rounds == "last":
            return self.estimate(view, generator=generator)
        views = [*view.earlier, view]
        for one in views:
            if not torch.equal(one.pseudonyms, view.pseudonyms):
                raise ViewError(f"round {one.round}: expected the same victims in the same order, got others")
        return self.combine([self.estimate(one, generator=generator) for one in views])

    @abc.abstractmethod
    def estimate(self, view: ServerView, *, generator: torch.Generator) -> CompositionEstimate:
        """The estimate from one round."""

    def combine(self, estimates: Sequence[CompositionEstimate]) -> CompositionEstimate:
        """The plain mean of the rounds, normalised (section IV-B); a class is present where any round says so."""
        mean = torch.stack([e.proportions for e in estimates]).mean(0)
        return certain(mean, torch.stack([e.present for e in estimates]).any(0))


def certain(proportions: Tensor, present: Tensor) -> CompositionEstimate:
    """An estimate without intervals."""
    total = proportions.sum(1, keepdim=True)
    nothing = torch.full_like(proportions, torch.nan)
    return CompositionEstimate(proportions=proportions / total, low=nothing, high=nothing, present=present)


def by_information(estimates: Sequence[CompositionEstimate]) -> CompositionEstimate:
    """Rounds weighted by the inverse of their variance, class by class, as their intervals say it.

    The rounds' errors are taken for independent; the interval of the mean is therefore no wider than the narrowest.
    A round that calls a class null, which others call present, says nothing of its share.
    """
    centre = torch.stack([e.proportions for e in estimates])
    half = torch.stack([(e.high - e.low) / 2 for e in estimates]).clamp(min=1e-6)
    found = torch.stack([e.present for e in estimates])
    present = found.any(0)
    information = half**-2 * found
    total = information.sum(0).where(present, 1)
    mean = (centre * information).sum(0) / total
    mean = mean / mean.sum(1, keepdim=True)
    width = total**-0.5 * present
    return CompositionEstimate(
        proportions=mean, low=(mean - width).clamp(0, 1), high=(mean + width).clamp(0, 1), present=present
    )
