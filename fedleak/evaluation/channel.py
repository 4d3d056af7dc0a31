"""The most bits that an update can carry about its client, by what clients publicly do to it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.core.release import Release
from fedleak.core.view import View
from fedleak.evaluation.leakage_bounds import capacity_bits

_COMMON_BITS = 64
"""Bits of a message besides those of its numbers, see `Release.bits`."""


@dataclass(frozen=True)
class Channel:
    """Clip of all parameters together and Gaussian noise on each number, as far as clients have them.

    Attributes:
        clip: L2 norm to which the whole update is clipped, None if some of it is not.
        noise_scale: smallest standard deviation of the noise of a parameter.
    """

    clip: float | None
    noise_scale: float

    @classmethod
    def of(cls, view: View) -> "Channel":
        """Channel of a view's deltas; of the whole model in a history whose deltas are read on access."""
        names = set(view.deltas or view.model)
        clips = []
        for release in view.releases:
            if release.clip is not None and names <= set(release.parameters):
                clips.append(release.clip)
        noise_scale = min((view.noise_scale(name) for name in names), default=0.0)
        return cls(min(clips, default=None), noise_scale)


def update_bits(view: View) -> Tensor:
    """``(V,)`` most bits that the updates of each client can carry about it; infinite where no bound is known.

    A release limits what its parameters carry in three ways. With a clip and Gaussian noise, it is the capacity of
    parallel Gaussian channels. With epsilon declared for a delta of 0, it is ``epsilon log2 e``: the mutual information
    of data and message is the mean divergence of the message's law from the mean law, and no likelihood ratio exceeds
    ``exp(epsilon)``. With few bits for each number, it is their count. The least of them holds, because what happens to
    a message later adds nothing. The limits of releases with different parameters add up, and each parameter needs one.

    The sum of a client's own messages carries at most what the messages carry, also if the model between them depends
    on them: feedback does not raise the capacity of a channel without memory. Of a sum over several clients, the limit
    is that of one update with the noise of all, as if the others' updates were known.

    References:
        [Cover06], sections 2.8, 7.12 and 9.4; [Cuff16].
    """
    if _uncounted(view):
        return torch.full((view.victims,), torch.inf, dtype=torch.float64)
    sizes = _sizes(view)
    bound = torch.zeros(view.victims, dtype=torch.float64)
    uncovered = set(sizes)
    # Releases of many parameters first: one limit on all together is less than one on each.
    for release in sorted(view.releases, key=lambda release: -len(release.parameters)):
        parameters = set(release.parameters) & uncovered
        covered = {name: sizes[name] for name in release.parameters if name in uncovered}
        if not covered:
            continue
        # Those with the same parameters among the rest, of which the least limit holds.
        same = [later for later in view.releases if set(later.parameters) & uncovered == parameters]
        limit = _limit(view, same, covered)
        if bool(limit.isfinite().all()):
            bound = bound + limit
            uncovered = uncovered - covered.keys()
    if uncovered:
        return torch.full_like(bound, torch.inf)
    return bound


def pure_epsilon(view: View) -> Tensor:
    """``(V,)`` epsilon that clients declare for their updates of a view with a delta of 0; infinite where they do not.

    One that holds for all parameters together, times the number of messages.
    """
    names = set(view.deltas or view.model)
    epsilons = []
    for release in view.releases:
        if release.epsilon is not None and not release.delta and names <= {*release.parameters}:
            epsilons.append(release.epsilon)
    if _uncounted(view) or not epsilons:
        return torch.full((view.victims,), torch.inf, dtype=torch.float64)
    # Epsilons of several messages add up.
    messages = torch.ones(view.victims) if view.messages is None else view.messages
    return messages.double() * min(epsilons)


def no_bound(view: View) -> str:
    """Why `update_bits` of a view is infinite; empty if it is not."""
    if _uncounted(view):
        return "the number of messages in the sum is not known"
    if bool(update_bits(view).isfinite().all()):
        return ""
    without_noise = [name for name in _sizes(view) if not view.noise_scale(name)]
    if without_noise and not any(_limits_by_itself(release) for release in view.releases):
        of_all = len(without_noise) == len(_sizes(view))
        which = "the updates" if of_all else ", ".join(without_noise[:3])
        return f"there is no known noise on {which}"
    return "not everything that is sent is both clipped and noised"


def _limits_by_itself(release: Release) -> bool:
    """Whether a release limits bits without a clip and noise: by their count, or by an epsilon with a delta of 0."""
    return release.bits is not None or (release.epsilon is not None and not release.delta)


def _uncounted(view: View) -> bool:
    """Whether a view holds sums of several messages of each client whose number is unknown."""
    return view.updates is not None and view.messages is None


def _limit(view: View, releases: list[Release], sizes: Mapping[str, Tensor]) -> Tensor:
    """``(V,)`` least limit of releases with the same parameters, of which each client sends ``(V,)`` numbers."""
    numbers = torch.stack(list(sizes.values())).sum(0)
    messages = torch.ones_like(numbers) if view.messages is None else view.messages.double()
    bound = torch.full_like(numbers, torch.inf)
    noise = min(view.noise_scale(name) for name in sizes)
    for release in releases:
        if release.clip is not None and noise:
            # Concave in the count of numbers: messages with equally many of them carry the most together.
            dimensions = numbers / messages.clamp(min=1)
            of_message = capacity_bits(clip=release.clip, noise_scale=noise, dimensions=dimensions)
            bound = bound.minimum(messages * of_message)
        if release.epsilon is not None and not release.delta:
            # epsilon log2 e
            bound = bound.minimum(messages * release.epsilon / math.log(2))
        if release.bits is not None:
            bound = bound.minimum(numbers * release.bits + messages * _COMMON_BITS)
    return bound


def _sizes(view: View) -> dict[str, Tensor]:
    """``(V,)`` count of the numbers that each client sends of each parameter, in all its messages of the view."""
    messages = torch.ones(view.victims) if view.messages is None else view.messages
    sizes = {}
    for name in view.deltas or view.model:
        # Shape of what one client sends: deltas have the client first.
        shape = view.deltas[name].shape[1:] if name in view.deltas else view.model[name].shape
        if name in view.row_parameters and view.served is not None:
            # Of a table, a client sends the rows of its served items, in a sum as often as it sent them.
            rows = view.served_mask if view.updates is None else view.updates
            sizes[name] = rows.sum(1).double() * shape[1:].numel()
        else:
            sizes[name] = messages.double() * shape.numel()
    return sizes
