"""Units that no own example excites, or only one, against a binomial law."""

import math

from torch import Tensor

from fedleak.defenses.model_checks.base import ModelCheck, ReceivedModel


class DeadUnits(ModelCheck):
    """Excess of units that no own example excites, in standard deviations of a binomial law.

    With N examples and a mean rate q of active outputs under the reference model, a unit is silent for all of them with
    probability ``(1 - q)^N`` if all outputs are independent. They are not, so that the threshold is that of honest
    rounds.
    """

    name = "dead-units"

    def statistic(self, received: ReceivedModel) -> float:
        return excess(received, 0)


class LoneUnits(ModelCheck):
    """Excess of units that exactly one own example excites, in standard deviations of a binomial law, see `DeadUnits`.

    The update of such a unit is the example. Trap weights, quantile biases and soliton biases aim at them.
    """

    name = "lone-units"

    def statistic(self, received: ReceivedModel) -> float:
        return excess(received, 1)


def excess(received: ReceivedModel, examples: int) -> float:
    """Number of units that as many own examples excite, minus its mean, over its deviation."""
    active, before = received.active, received.active_before
    size, units = active.shape
    rate = min(max(float(before.double().mean()), 1 / before.numel()), 1 - 1 / before.numel())
    share = math.comb(size, examples) * rate**examples * (1 - rate) ** (size - examples)
    return (_units(active, examples) - units * share) / math.sqrt(units * share * (1 - share) + 1)


def _units(active: Tensor, examples: int) -> int:
    return int((active.sum(0) == examples).sum())
