"""Parts of a message that no check covers."""

from typing import ClassVar

from fedleak_guard.check import Check, Measurement
from fedleak_guard.message import Message
from fedleak_guard.policy import Action, Policy


class KnownParts(Check):
    """Parts of the message, such as texts, files or records of an unknown kind, that no check covers."""

    name = "known-parts"
    text = "number of parts of the message that no check covers"
    actions: ClassVar[tuple[Action, ...]] = ("refuse",)

    def concerns(self, message: Message, policy: Policy, *, first: bool) -> bool:
        return True

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measurement:
        named = ", ".join(name[:80] for name in message.unknown[:3])
        return Measurement(
            value=len(message.unknown),
            found=bool(message.unknown),
            limit=0,
            sentence=f"{len(message.unknown)} parts of the message that no check covers: {named}",
        )
