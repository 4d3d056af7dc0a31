"""Share of the numbers that the update changes."""

import numpy as np

from fedleak_guard.check import Check, Measured
from fedleak_guard.message import Message
from fedleak_guard.policy import Policy


class ChangedShare(Check):
    """Share of the numbers of floating-point tensors that change.

    Its limits are ``update.min_changed`` and ``update.max_changed``. A small share says which few words, items or
    neurons a client has; a large one is unusual for a client that should send a sparse update.
    """

    name = "changed-share"
    text = "share of the numbers that change"

    @classmethod
    def lacking(cls, policy: Policy) -> str:
        limits = policy.update.min_changed, policy.update.max_changed
        return "update.max_changed" if limits == (None, None) else ""

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measured | None:
        low, high = policy.update.min_changed, policy.update.max_changed
        if message.sent is None or (low is None and high is None):
            return None
        changed = sum(int(np.count_nonzero(value != 0)) for value in message.changes.values())
        share = changed / max(sum(value.size for value in message.changes.values()), 1)
        least, most = 0.0 if low is None else low, 1.0 if high is None else high
        sentence = f"a share of {share:.6g} of the numbers changes, outside {least:g} to {most:g}"
        return Measured(value=share, found=not least <= share <= most, sentence=sentence)
