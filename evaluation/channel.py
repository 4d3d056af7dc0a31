"""How clients release their updates, and the most bits that an update can carry."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from evaluation.leakage_bounds import capacity_bits
from protocol.view import View


@dataclass(frozen=True)
class Channel:
    """How clients release their updates: all parameters clipped together, and noise on each number.

    Attributes:
        clip: L2 norm to which the whole update is clipped, None if some of it is not.
        noise_scale: smallest standard deviation of the noise of a parameter.
        epsilon: smallest epsilon that the clients declare, with a delta of 0, for the whole update; None for none.
    """

    clip: float | None
    noise_scale: float
    epsilon: float | None = None

    @classmethod
    def of(cls, view: View) -> "Channel":
        """Channel of a view's deltas; of the whole model in a history whose deltas are read on access."""
        names = set(view.deltas or view.model)
        whole = [one for one in view.releases if names <= set(one.parameters)]
        clips = [one.clip for one in whole if one.clip is not None]
        pure = [one.epsilon for one in whole if one.epsilon is not None and one.delta in (0.0, None)]
        noise = min((view.noise_scale(name) for name in names), default=0.0)
        return cls(min(clips, default=None), noise, min(pure, default=None))


def update_bits(view: View) -> Tensor:
    """``(V,)`` most bits that each update of a view can carry about its client; infinite where no bound is known.

    Of an update of which all is clipped and noised, it is the capacity of the Gaussian channel. Where the clients
    declare epsilon with a delta of 0, it is at most ``epsilon log2 e``: the mutual information of data and message is
    the mean divergence of the message's law from the mean law, and no likelihood ratio exceeds ``exp(epsilon)``.

    References:
        Cover and Thomas, "Elements of Information Theory", 2nd edition, 2006, section 9.4; Cuff and Yu, "Differential
        Privacy as a Mutual Information Constraint", CCS 2016, arXiv:1608.03677.
    """
    channel = Channel.of(view)
    bound = torch.full((view.victims,), torch.inf, dtype=torch.float64)
    if view.updates is not None or view.messages is not None:
        return bound  # a sum of messages is no single use of the channel
    if channel.epsilon is not None:
        bound = bound.clamp(max=channel.epsilon / math.log(2))
    if channel.clip is not None and channel.noise_scale:
        numbers = torch.zeros(view.victims)
        sizes = {name: value[0].numel() for name, value in view.deltas.items()}
        for name, size in (sizes or {name: value.numel() for name, value in view.model.items()}).items():
            if name in view.row_parameters and view.served is not None:
                numbers += view.served_mask.sum(1) * view.model[name][0].numel()
            else:
                numbers += size
        capacity = capacity_bits(clip=channel.clip, noise_scale=channel.noise_scale, dimensions=numbers)
        bound = torch.minimum(bound, capacity)
    return bound
