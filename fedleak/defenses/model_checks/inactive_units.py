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
    active = received.active
    active_before = received.active_before
    size, units = active.shape
    # The mean rate q under the reference model, which is neither 0 nor 1 by chance.
    rate = float(active_before.double().mean())
    rate = min(max(rate, 1 / active_before.numel()), 1 - 1 / active_before.numel())
    # The binomial probability that k of N examples excite a unit, and the law of how many of U units these are.
    probability = math.comb(size, examples) * rate**examples * (1 - rate) ** (size - examples)
    mean = units * probability
    # One more in the variance: a law without any spread would make a single unit an infinite excess.
    deviation = math.sqrt(units * probability * (1 - probability) + 1)
    return (_units(active, examples) - mean) / deviation


def _units(active: Tensor, examples: int) -> int:
    """Number of units that as many examples excite."""
    return int((active.sum(0) == examples).sum())
