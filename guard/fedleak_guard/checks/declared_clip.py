"""The declared clip, in the client's own message."""

import math
from typing import ClassVar

from fedleak_guard.check import Check, Measurement, measured
from fedleak_guard.message import Message, norm_of
from fedleak_guard.noise_tests import LOG_ALPHA, private_tensors, rounding
from fedleak_guard.policy import Action, Policy


class DeclaredClip(Check):
    """L2 norm of the tensors that are declared to be clipped.

    Of the update before the noise, if the guard gets it; else of the message, whose norm is at most that of the clip
    and of the noise, with a probability of 1 - 1e-9 (Laurent and Massart 2000, lemma 1).
    """

    name = "declared-clip"
    text = "L2 norm of the tensors that are declared to be clipped"
    actions: ClassVar[tuple[Action, ...]] = ("refuse", "noise", "log")

    @classmethod
    def lacking(cls, policy: Policy) -> str:
        return "privacy" if policy.privacy is None else ""

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measurement | None:
        if message.sent is None or policy.privacy is None:
            return None
        privacy = policy.privacy
        changes = private_tensors(message, privacy)
        # The norm may exceed the clip by the rounding of the client's own clipping, 1e-5 of it in single precision,
        # and by that of the sent numbers, of which each is off by its tensor's largest error at most.
        errors = rounding(message)
        rounded = math.sqrt(sum(value.size * errors[name] ** 2 for name, value in changes.items()))
        slack = privacy.clip * 1e-5 + rounded
        if message.before_noise is not None:
            norm = norm_of(private_tensors(message, privacy, before=True))
            return measured(norm, privacy.clip + slack, f"before the noise, the update has the L2 norm {norm:.6g}")
        norm = norm_of(changes)
        noise = privacy.noise or 0.0
        numbers = sum(value.size for value in changes.values())
        # A chi-squared variable of d degrees exceeds d + 2 sqrt(d a) + 2 a with probability exp(-a) at most; times the
        # variance, that bounds the squared norm of the noise.
        noise_norm = noise * math.sqrt(numbers + 2 * math.sqrt(numbers * LOG_ALPHA) + 2 * LOG_ALPHA)
        return measured(norm, privacy.clip + noise_norm + slack, f"the message has the L2 norm {norm:.6g}")
