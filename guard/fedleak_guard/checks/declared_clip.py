"""The declared clip, in the client's own message."""

import math
from typing import ClassVar

from fedleak_guard.check import Check, Measured, measured
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

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measured | None:
        if message.sent is None or policy.privacy is None:
            return None
        privacy, changes = policy.privacy, private_tensors(message, policy.privacy)
        numbers = sum(value.size for value in changes.values())
        errors = rounding(message)
        rounded = math.sqrt(sum(value.size * errors[name] ** 2 for name, value in changes.items()))
        slack = privacy.clip * 1e-5 + rounded
        if message.before_noise is not None:
            found = norm_of(private_tensors(message, privacy, before=True))
            return measured(found, privacy.clip + slack, f"before the noise, the update has the L2 norm {found:.6g}")
        found, noise = norm_of(changes), privacy.noise or 0.0
        most = noise * math.sqrt(numbers + 2 * math.sqrt(numbers * LOG_ALPHA) + 2 * LOG_ALPHA)
        return measured(found, privacy.clip + most + slack, f"the message has the L2 norm {found:.6g}")
