"""The release check of the main package, on the own message."""

from typing import ClassVar

from fedleak_guard.check import Check, Measured, measured
from fedleak_guard.message import Message
from fedleak_guard.own_attack import estimate_of
from fedleak_guard.policy import Action, Policy


class ReleaseCheck(Check):
    """Findings of release-check: law, scale and resolution of the declared noise, its reuse, and the clip.

    At a level of 1e-6 for a message, so that an honest site of a thousand rounds has no false finding with 99.9 %.
    """

    name = "release-check"
    text = "number of findings of release-check in the message"
    actions: ClassVar[tuple[Action, ...]] = ("refuse", "noise", "log")
    exact = True
    may_lack = True
    limited = True

    @classmethod
    def lacking(cls, policy: Policy) -> str:
        return "privacy.noise" if policy.privacy is None or policy.privacy.noise is None else ""

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measured | None:
        if message.sent is None or policy.privacy is None or policy.privacy.noise is None:
            return None
        path = "fedleak.attacks.declared_privacy.release_check.ReleaseCheck"
        found = estimate_of(path, message, policy, history=True, arguments={"alpha": 1e-6})
        count = int(found.findings.sum())
        return measured(count, policy.limits.get(self.name, 0), f"release-check has {count} findings")
