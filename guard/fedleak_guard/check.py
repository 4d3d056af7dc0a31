"""What a check of a message is; `fedleak_guard.known_checks` finds them."""

import abc
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fedleak_guard.message import Message
from fedleak_guard.policy import Action, Policy


class NotMadeError(Exception):
    """A check that could not be made, and why; it is no finding, unless the policy requires the check.

    Args:
        reason: one line.
        statistics: numbers that the log gets nevertheless, by name.
    """

    def __init__(self, reason: str, statistics: Mapping[str, Any] | None = None) -> None:
        super().__init__(reason)
        self.statistics = statistics or {}


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What a check measured.

    Attributes:
        value: the number that is compared and logged.
        found: whether it is a finding.
        sentence: what it means, for the site.
        limit: largest value that is no finding; None if the check has no single one.
        statistics: further numbers for the log, by name.
    """

    value: float
    found: bool
    sentence: str
    limit: float | None = None
    statistics: Mapping[str, Any] = field(default_factory=dict)


class Check(abc.ABC):
    """Base class of the checks of a message.

    Attributes:
        name: name in policies and logs.
        text: what is measured, for the documentation.
        action: what a finding does unless the policy says otherwise.
        actions: what a policy may choose.
        exact: whether it is an attack, whose result attack_results.json lists.
        may_lack: whether a message may leave where the check could not be made, unless the policy requires it.
        limited: whether it compares with `Policy.limits`.
    """

    name: ClassVar[str]
    text: ClassVar[str]
    action: ClassVar[Action] = "refuse"
    actions: ClassVar[tuple[Action, ...]] = ("refuse", "log")
    exact: ClassVar[bool] = False
    may_lack: ClassVar[bool] = False
    limited: ClassVar[bool] = False

    @abc.abstractmethod
    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measurement | None:
        """Measures a message; None if the policy sets no limit that concerns it.

        Args:
            message: what is about to leave.
            policy: the site's policy.
            first: whether nothing of this job has left the site before.

        Raises:
            NotMadeError: the check cannot be made here.
        """

    @classmethod
    def lacking(cls, policy: Policy) -> str:  # noqa: ARG003 - subclasses look at it
        """The key of a policy without which the check measures nothing; empty if it measures something."""
        return ""

    def concerns(self, message: Message, policy: Policy, *, first: bool) -> bool:
        """Whether the message has what the check is about, so that a policy may require it."""
        return message.sent is not None


def measured(value: float, limit: float, sentence: str) -> Measurement:
    """A value that is a finding above a limit, or if it is no number."""
    # Not `value > limit`, which is false of NaN: what cannot be compared is a finding.
    is_finding = not value <= limit
    return Measurement(value=value, found=is_finding, limit=limit, sentence=f"{sentence}, above {limit:g}")
