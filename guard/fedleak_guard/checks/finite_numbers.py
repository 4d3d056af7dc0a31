"""Numbers of the update that are NaN or infinite."""

import math
from typing import ClassVar

import numpy as np

from fedleak_guard.check import Check, Measurement
from fedleak_guard.message import Message
from fedleak_guard.policy import Action, Policy


class FiniteNumbers(Check):
    """NaN and infinite numbers, whose bits can carry anything."""

    name = "finite-numbers"
    text = "number of sent numbers that are NaN or infinite"
    actions: ClassVar[tuple[Action, ...]] = ("refuse",)

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measurement | None:
        if message.sent is None:
            return None
        strange = 0
        # A finite norm needs finite real numbers, and checks compute it anyway. That of finite numbers may overflow, so
        # that they are counted then; complex ones are not in it.
        has_complex = any(value.dtype.kind == "c" for value in message.tensors.values())
        if has_complex or not math.isfinite(message.norm):
            for value in message.tensors.values():
                strange += int(value.size - np.isfinite(value).sum())
        return Measurement(value=strange, found=strange > 0, limit=0, sentence=f"{strange} numbers are NaN or infinite")
