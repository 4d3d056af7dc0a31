"""The client's words that the server can read off the embedding table."""

from typing import ClassVar

from fedleak_guard.check import Check, Measured, NotMadeError, measured
from fedleak_guard.message import Message
from fedleak_guard.own_attack import estimate_of
from fedleak_guard.policy import Action, Policy


class OwnWords(Check):
    """Words whose rows of the embedding table move, where others do not (touched-rows)."""

    name = "own-words"
    text = "number of words that the server can read off the rows of an embedding table (touched-rows)"
    actions: ClassVar[tuple[Action, ...]] = ("refuse", "noise", "log")
    exact = True
    limited = True

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measured | None:
        if message.sent is None:
            return None
        found = estimate_of("attacks.words.touched_rows.TouchedRows", message, policy)
        words, possible = int(found.decisions.sum()), int(found.decisions.shape[1])
        if words == possible:
            raise NotMadeError("all rows of the embedding table move, so that no set of words follows")
        return measured(words, policy.limits.get(self.name, 0), f"the server can read {words} words of {possible}")
