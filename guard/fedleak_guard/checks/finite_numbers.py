"""Numbers of the update that are NaN or infinite."""

import math
from typing import ClassVar

import numpy as np

from fedleak_guard.check import Check, Measured
from fedleak_guard.message import Message
from fedleak_guard.policy import Action, Policy


class FiniteNumbers(Check):
    """NaN and infinite numbers, whose bits can carry anything."""

    name = "finite-numbers"
    text = "number of sent numbers that are NaN or infinite"
    actions: ClassVar[tuple[Action, ...]] = ("refuse",)

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measured | None:
        if message.sent is None:
            return None
        strange = 0
        complex_ones = any(value.dtype.kind == "c" for value in message.tensors.values())
        if complex_ones or not math.isfinite(message.norm):  # a finite norm needs finite real numbers
            strange = sum(int(value.size - np.isfinite(value).sum()) for value in message.tensors.values())
        return Measured(value=strange, found=strange > 0, limit=0, sentence=f"{strange} numbers are NaN or infinite")
