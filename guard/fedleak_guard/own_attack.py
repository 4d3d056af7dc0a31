"""Attacks on the own message: what the server could do, done before it can."""

from typing import ClassVar

from fedleak_guard.check import Check, Measurement, NotMadeError, measured
from fedleak_guard.message import Message
from fedleak_guard.policy import Action, Policy

NOT_INSTALLED = "the main package fedleak is not installed"


class OwnAttack(Check):
    """Base class of checks that run one attack on the own message and compare what it finds with a limit.

    Attributes:
        most: the limit unless the policy has another.
    """

    actions: ClassVar[tuple[Action, ...]] = ("refuse", "noise", "log")
    exact = True
    may_lack = True
    limited = True
    most: ClassVar[float] = 0

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measurement | None:
        if message.sent is None:
            return None
        value, sentence = self.attacked(message, policy)
        limit = policy.limits.get(self.name, self.most)
        return measured(value, limit, sentence)

    def attacked(self, message: Message, policy: Policy) -> tuple[float, str]:
        """What the attack finds, as a number and a sentence.

        Raises:
            NotMadeError: the attack cannot be made here, for one because no plug-in has it.
        """
        raise NotMadeError(NOT_INSTALLED)
