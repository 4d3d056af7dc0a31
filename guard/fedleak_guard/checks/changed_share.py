"""Share of the numbers that the update changes."""

import numpy as np

from fedleak_guard.check import Check, Measurement
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

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measurement | None:
        least = policy.update.min_changed
        most = policy.update.max_changed
        if message.sent is None or (least is None and most is None):
            return None
        if least is None:
            least = 0.0
        if most is None:
            most = 1.0
        changed = 0
        numbers = 0
        for change in message.changes.values():
            changed += int(np.count_nonzero(change != 0))  # NaN differs from 0, and counts as changed
            numbers += change.size
        share = changed / max(numbers, 1)
        # Written so that a share that is no number is a finding.
        is_finding = not least <= share <= most
        sentence = f"a share of {share:.6g} of the numbers changes, outside {least:g} to {most:g}"
        return Measurement(value=share, found=is_finding, sentence=sentence)
