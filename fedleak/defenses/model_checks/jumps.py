"""Jumps of the own loss and of the own gradient from the model before."""

import math

from fedleak.defenses.model_checks.base import ModelCheck, ReceivedModel

_LEAST = 1e-12
"""Least loss or norm: the ratio to zero would be infinite."""


class LossJump(ModelCheck):
    """Absolute log ratio of the mean loss of the own examples at the received model to that at the reference."""

    name = "loss-jump"

    def statistic(self, received: ReceivedModel) -> float:
        now = float(received.mean_loss(received.model))
        before = float(received.mean_loss(received.reference))
        return _jump(now, before)


class GradientJump(ModelCheck):
    """Absolute log ratio of the norm of the own gradient at the received model to that at the reference."""

    name = "gradient-jump"

    def statistic(self, received: ReceivedModel) -> float:
        now = float(received.gradient_norm(received.model))
        before = float(received.gradient_norm(received.reference))
        return _jump(now, before)


def _jump(now: float, before: float) -> float:
    return abs(math.log(max(now, _LEAST) / max(before, _LEAST)))
