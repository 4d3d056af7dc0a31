"""Class counts as whole numbers, decoded from the larger weight of the last, smaller mini-batch."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.composition.base import certain
from fedleak.attacks.composition.closed_form import ClosedForm
from fedleak.attacks.composition.estimates import CompositionEstimate
from fedleak.client.auxiliary_images import Auxiliary, auxiliary
from fedleak.client.last_layer import layer_change
from fedleak.client.network import ClassifierAlgorithm
from fedleak.client.simulated_clients import draw_examples, random_compositions, simulated_changes
from fedleak.core.errors import ViewError
from fedleak.core.largest_remainders import largest_remainders
from fedleak.core.ranges import AtLeastTwo
from fedleak.core.view import RoundView

_KEPT = 40
"""Most likely pairs of a count and the one in the last mini-batch that are kept for each class."""
_AROUND = 3
"""Counts tried on both sides of the most likely one, for each count in the last mini-batch."""

_LEAST_ERROR = 1e-9
"""Smallest error of the closed form: that on clients of one example may be exactly 0."""


@dataclass(frozen=True, kw_only=True)
class ExactCounts(ClosedForm):
    """Most likely whole class counts behind the shares of `ClosedForm`.

    If the batch size B does not divide the N examples, each of the r examples of the last mini-batch weighs 1/r instead
    of 1/B in its step. With T steps, n_c examples of class c and m_c of them in the last mini-batch, the closed form
    finds the share ``s_c = ((n_c - m_c) / B + m_c / r) / T`` instead of ``n_c / N``. Given ``sum n = N`` and ``sum m =
    r``, dynamic programming over the classes maximises the normal likelihood of the shares times the hypergeometric
    probability of m.

    Threat model: passive server, one round; knows the clients' training algorithm, which is one pass of plain SGD, and
    their example counts, and has a few images of each class.

    The standard deviation of the shares is that of `simulated` clients with the full mini-batches only, or with all
    examples where they fill none.

    Args:
        simulated: number of simulated clients, shared by all victims.

    References:
        This project.
    """

    name = "exact-counts"
    cost = "milliseconds per victim, and `simulated` trainings"

    simulated: AtLeastTwo = 20
    weights: bool = False

    def estimate(self, view: RoundView, *, generator: torch.Generator) -> CompositionEstimate:
        batch = view.require(ClassifierAlgorithm).single_pass_batch
        if batch is None:
            raise ViewError("expected clients that make one pass of plain SGD in mini-batches, got another algorithm")
        known = auxiliary(view, layer_change(view).bias.shape[1], self.auxiliary_per_class)
        shares, _ = self.shares(view, known, view.deltas, view.example_counts)
        full = view.example_counts.clamp(1, batch)
        error = self._error(view, known, (view.example_counts // full * full).clamp(min=1), generator)
        counts = torch.zeros(shares.shape, dtype=torch.float64)
        for size in set(view.example_counts.tolist()):
            same = view.example_counts == size
            counts[same] = most_likely_counts(shares[same], size, batch, error).double()
        return certain(counts, counts > 0)

    def _error(self, view: RoundView, known: Auxiliary, sizes: Tensor, generator: torch.Generator) -> float:
        """R.m.s. error of the closed form on simulated clients with example counts among ``sizes (V,)``."""
        own = sizes[torch.arange(self.simulated) % len(sizes)]
        counts = largest_remainders(random_compositions(self.simulated, len(known.by_class), generator=generator), own)
        examples = draw_examples(known, counts, generator=generator)
        parts = list(simulated_changes(view, (known.images, known.labels), examples, generator=generator))
        deltas = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        shares, _ = self.shares(view, known, deltas, own)
        return max(float((shares - counts / own[:, None]).square().mean().sqrt()), _LEAST_ERROR)


def most_likely_counts(shares: Tensor, examples: int, batch: int, error: float) -> Tensor:
    """``(V, K)`` most likely counts of clients of equal size, see `ExactCounts`.

    In ``shares (V, K)``, with errors of standard deviation `error`, the last mini-batch weighs as much as the others.
    """
    steps = -(-examples // batch)
    last = examples - (steps - 1) * batch
    full = min(batch, examples)
    late = torch.arange(last + 1)
    weights = late / last - late / full
    middle = ((shares[..., None] * steps - weights) * full).round()
    tried = middle[..., None] + torch.arange(-_AROUND, _AROUND + 1)
    held = torch.where(tried >= late[:, None], tried, -1).clamp(max=examples).long()
    gap = (held / full + weights[:, None]) / steps - shares[..., None, None]
    value = -gap.square() / (2 * error**2) + _log_choose(held.clamp(min=0), late[:, None])
    # All examples of a single mini-batch are in the last one; other pairs would take the places of those.
    value = value.where((held == late[:, None]) if steps == 1 else (held >= 0), -torch.inf).flatten(2)
    value, kept = value.topk(min(_KEPT, value.shape[2]), dim=2)
    held = held.clamp(min=0).flatten(2).gather(2, kept)
    inside = late.repeat_interleave(2 * _AROUND + 1)[kept]
    victims, classes = shares.shape
    best = shares.new_full((victims, examples + 1, last + 1), -torch.inf)
    best[:, 0, 0] = 0
    total, drawn = torch.meshgrid(torch.arange(examples + 1), late, indexing="ij")
    row = torch.arange(victims)[:, None, None, None]
    choices = []
    for c in range(classes):
        before = total - held[:, c, :, None, None], drawn - inside[:, c, :, None, None]
        possible = (before[0] >= 0) & (before[1] >= 0)
        reached = best[row, before[0].clamp(min=0), before[1].clamp(min=0)].where(possible, -torch.inf)
        best, choice = (reached + value[:, c, :, None, None]).max(1)
        choices.append(choice)
    place = torch.full((victims,), examples), torch.full((victims,), last)
    own, counts = torch.arange(victims), torch.zeros(shares.shape, dtype=torch.int64)
    for c in reversed(range(classes)):
        choice = choices[c][own, place[0].clamp(min=0), place[1].clamp(min=0)]
        counts[:, c] = held[own, c, choice]
        place = place[0] - counts[:, c], place[1] - inside[own, c, choice]
    nearest = (shares * examples).round().long()  # where no combination that was tried has the right sums
    return torch.where((best[:, examples, last] > -torch.inf)[:, None], counts, nearest)


def _log_choose(all_of: Tensor, chosen: Tensor) -> Tensor:
    parts = (all_of + 1.0, chosen + 1.0, (all_of - chosen).clamp(min=0) + 1.0)
    whole, first, second = (torch.lgamma(part.double()) for part in parts)
    return whole - first - second
