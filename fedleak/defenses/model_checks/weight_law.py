"""The law of a tensor's numbers against that of the model before."""

import torch
from scipy.stats import ks_2samp
from torch import Tensor

from fedleak.defenses.model_checks.base import ModelCheck, ReceivedModel

_FEWEST = 8
"""Numbers below which a tensor has no law to speak of."""
_MOST = 20_000
"""Numbers of a tensor that are compared; of more, evenly spaced ones."""


class WeightLaw(ModelCheck):
    """Largest Kolmogorov-Smirnov statistic of a tensor's numbers against those of the reference model.

    Each is scaled by ``sqrt(n m / (n + m))``. The reference is the model of the round before, or an initialisation that
    the client draws itself in its first round. It also detects a change of the biases alone. A tensor that is constant
    in the reference, such as biases of 0 before the first round, is left out in the first round if the received one is
    constant too.
    """

    name = "weight-law"
    reads_examples = False

    def statistic(self, received: ReceivedModel) -> float:
        statistics = []
        for name, tensor in received.model.items():
            if name in received.reference and tensor.numel() >= _FEWEST:
                statistics.append(kolmogorov_smirnov(_some(tensor), _some(received.reference[name])))
        return max(statistics, default=0.0)


def _some(tensor: Tensor) -> Tensor:
    """At most `_MOST` numbers of a tensor, evenly spaced, in float64."""
    flat = tensor.detach().flatten().double().cpu()
    return flat[:: max(1, -(-len(flat) // _MOST))]


def kolmogorov_smirnov(first: Tensor, second: Tensor) -> float:
    """Scaled largest distance of the empirical distributions of ``(n,)`` and ``(m,)`` numbers."""
    # A number that is none is beyond all others, so that a model of NaN differs from any other.
    first = first.nan_to_num(torch.inf, torch.inf, -torch.inf)
    second = second.nan_to_num(torch.inf, torch.inf, -torch.inf)
    # The p-value, which nothing reads, takes longest where it is exact.
    statistic = ks_2samp(first.numpy(), second.numpy(), method="asymp").statistic
    scale = (len(first) * len(second) / (len(first) + len(second))) ** 0.5
    return float(statistic) * float(scale)
