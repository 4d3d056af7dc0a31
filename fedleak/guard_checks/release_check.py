"""The release check of the main package, on the own message."""

from fedleak.attacks.declared_privacy.release_check import ReleaseCheck as ReleaseAttack
from fedleak.attacks.declared_privacy.release_check import ReleaseEstimate
from fedleak.guard_checks.own_estimate import estimate_of_history, own_view
from fedleak_guard.check import Measurement, measured
from fedleak_guard.declared_checks import ReleaseCheck
from fedleak_guard.message import Message
from fedleak_guard.policy import Policy

_ALPHA = 1e-6
"""Level of the tests of a message: an honest site of a thousand rounds has no false finding with 99.9 %."""


class ReleaseByTests(ReleaseCheck):
    """Findings of release-check: law, scale and resolution of the declared noise, its reuse, and the clip."""

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measurement | None:
        if message.sent is None or self.lacking(policy):
            return None
        view = own_view(message, policy)
        estimate = estimate_of_history(ReleaseAttack(alpha=_ALPHA), ReleaseEstimate, view)
        count = int(estimate.findings.sum())
        limit = policy.limits.get(self.name, 0)
        return measured(count, limit, f"release-check has {count} findings")
