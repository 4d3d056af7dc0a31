"""L2 norm of the update."""

from typing import ClassVar

from fedleak_guard.check import Check, Measurement, measured
from fedleak_guard.message import Message
from fedleak_guard.policy import Action, Policy


class UpdateNorm(Check):
    """L2 norm of the changes of all floating-point tensors together, against ``update.max_norm``."""

    name = "update-norm"
    text = "L2 norm of the update"
    actions: ClassVar[tuple[Action, ...]] = ("refuse", "noise", "log")

    @classmethod
    def lacking(cls, policy: Policy) -> str:
        return "update.max_norm" if policy.update.max_norm is None else ""

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measurement | None:
        limit = policy.update.max_norm
        if message.sent is None or limit is None:
            return None
        return measured(message.norm, limit, f"the update has the L2 norm {message.norm:.6g}")
