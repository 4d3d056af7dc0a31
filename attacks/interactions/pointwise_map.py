"""The linear map from the clicks of a client to its update, along the way on which the client trained.

With the mean cross-entropy, T steps change the parameters by ``(lr / R) sum_t J_t^T (I - p_t)``, where J_t are the
gradients of the scores and p_t the probabilities before step t. Given the way, the update is affine in the clicks I
(RAIFLE, theorem 1 and appendix A, where T = 1). The way depends on the clicks, but little: its first and last point
are known, and what a way from other clicks lacks at its end is made up for evenly along it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.interactions.pointwise_descent import Items, Outputs, Ranker, outputs, pull


@dataclass(frozen=True)
class ClickMap:
    """A linear map from clicks ``(V, R)`` to changes of rankers, and what honest clients add to it.

    Attributes:
        items: what was served.
        slopes: ``(V, R, H)`` mean over the way of what `Outputs` has.
        hidden: ``(V, R, H)`` likewise, None for a linear ranker.
        offset: what the map would give of the probabilities, were they clicks.
    """

    items: Items
    slopes: Tensor
    hidden: Tensor | None
    offset: Ranker

    def apply(self, clicks: Tensor) -> Ranker:
        """The map."""
        return pull(Outputs(clicks, self.slopes, self.hidden), self.items, clicks)

    def transpose(self, change: Ranker) -> Tensor:
        """``(V, R)`` the transposed map."""
        back = (self.items.forward(change.weight) * self.slopes).sum(-1)
        if self.hidden is None or change.output is None:
            return back
        return back + (self.hidden * change.output[:, None]).sum(-1)

    def squares(self) -> Tensor:
        """``(V, R)`` squared norms of the columns: by how much a click of an item changes the update."""
        own = self.items.norms * self.slopes.square().sum(-1)
        return own if self.hidden is None else own + self.hidden.square().sum(-1)


def click_map(way: Sequence[Ranker], items: Items) -> ClickMap:
    """The map along a way: the rankers before each step."""
    slopes, hidden, expected = torch.zeros(()), torch.zeros(()), None
    for ranker in way:
        found = outputs(ranker, items)
        slopes = slopes + found.slopes / len(way)
        hidden = hidden if found.hidden is None else hidden + found.hidden / len(way)
        step = pull(found, items, found.probabilities / len(way))
        expected = step if expected is None else expected.plus(step)
    assert expected is not None
    return ClickMap(items, slopes, None if expected.output is None else hidden, expected)


def bridged(way: Sequence[Ranker], change: Ranker) -> list[Ranker]:
    """A way that ends where the client's did.

    Args:
        way: rankers before each step and after the last, from other clicks than the client's.
        change: the client's update.

    Returns:
        The rankers before each step.
    """
    gap = way[0].plus(change).plus(way[-1], -1.0)
    steps = len(way) - 1
    return [ranker.plus(gap, step / steps) for step, ranker in enumerate(way[:-1])]
