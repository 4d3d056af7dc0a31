"""What a site has released: messages and privacy loss by job, counted from its log."""

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedleak_guard.gaussian import gaussian_epsilon
from fedleak_guard.message import Message
from fedleak_guard.policy import Budget, Policy


class Spent(NamedTuple):
    """Messages that left, and the sum of their ``(sensitivity / sigma)^2``; infinite if one had no declared noise."""

    messages: int = 0
    precision: float = 0.0

    def after(self, precision: float) -> "Spent":
        """The same after one more message."""
        return Spent(self.messages + 1, self.precision + precision)


class Ledger:
    """What left, counted from the entries of a log as they are appended, so that a round costs the same in any log.

    Attributes:
        site: what left in all jobs.
        jobs: what left in each job, those that sent metrics alone included.
        left: messages of any kind that left in each job, those of metrics alone included.
    """

    def __init__(self) -> None:
        self.site = Spent()
        self.jobs: dict[str, Spent] = {}
        self.left = Counter[str]()
        self._counted = 0
        """Entries of the log that were counted."""

    def is_first(self, job: str) -> bool:
        """Whether no tensors of a job have left, so that the next ones are those of its first round."""
        return self.jobs.get(job, Spent()).messages == 0

    def overdrawn(self, budget: Budget, message: Message, precision: float) -> list[str]:
        """Limits of the budget that a message would exceed."""
        reasons = []
        if message.sent is not None:
            job = self.jobs.get(message.job, Spent())
            reasons += overdrawn(budget, job.after(precision), self.site.after(precision))
        limits = (
            ("job", self.left[message.job], budget.job.messages),
            ("site", self.left.total(), budget.site.messages),
        )
        for name, total, most in limits:
            if most is not None and total >= most:
                reasons.append(f"message {total + 1} of any kind of the {name}, where the budget has {most}")
        return reasons

    def count(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Counts the entries of a log from where it counted before."""
        for entry in itertools.islice(entries, self._counted, None):
            if entry["event"] != "released":
                continue
            job = entry["job"]
            self.left[job] += 1
            spent_in_job = self.jobs.get(job, Spent())
            if entry["tensors"]:
                # JSON has no infinity: a message without declared noise has null.
                precision = math.inf if entry["precision"] is None else entry["precision"]
                spent_in_job = spent_in_job.after(precision)
                self.site = self.site.after(precision)
            self.jobs[job] = spent_in_job
        self._counted = len(entries)


def spent(entries: Sequence[Mapping[str, Any]]) -> Spent:
    """What left in all jobs of a log."""
    ledger = Ledger()
    ledger.count(entries)
    return ledger.site


def precision_of(policy: Policy, *, declared: bool, added: bool) -> float:
    """``(sensitivity / sigma)^2`` of a message; infinite without noise.

    Args:
        policy: clip and scale of the declared and of the added noise.
        declared: whether the checks found the declared clip and noise in the message.
        added: whether the guard adds its own.
    """
    losses = [math.inf]
    privacy = policy.privacy
    noise = policy.noise
    # A client's update replaced by another one moves the sum by up to twice the clip, one that is added by the clip.
    clips = 2.0
    if privacy is not None and privacy.neighbours == "add":
        clips = 1.0
    if declared and privacy is not None and privacy.noise is not None:
        losses.append((clips * privacy.clip / privacy.noise) ** 2)
    if added and noise is not None:
        losses.append((clips * noise.clip / noise.scale) ** 2)
    # Each of the two noises alone keeps its guarantee, whatever the other is.
    return min(losses)


def overdrawn(budget: Budget, job: Spent, site: Spent) -> list[str]:
    """Limits of the budget that a message would exceed, given what is spent with it."""
    exceeded = []
    for name, total, most in (("job", job, budget.job), ("site", site, budget.site)):
        if most.rounds is not None and total.messages > most.rounds:
            exceeded.append(f"message {total.messages} of the {name}, where the budget has {most.rounds}")
        if most.epsilon is not None:
            epsilon = gaussian_epsilon(total.precision, budget.delta)
            # Not `epsilon > limit`, which is false of NaN.
            if not epsilon <= most.epsilon:
                exceeded.append(f"epsilon of the {name} would be {epsilon:.4g}, where the budget has {most.epsilon:g}")
    return exceeded
