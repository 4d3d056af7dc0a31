"""The client's words that the server can solve for from the update of adapters."""

from typing import ClassVar

from fedleak_guard.check import Check, Measured, measured
from fedleak_guard.message import Message
from fedleak_guard.own_attack import estimate_of
from fedleak_guard.policy import Action, Policy


class OwnAdapterWords(Check):
    """Words that explain the update of low-rank adapters (adapter-words); needs the client's algorithm.

    Words that explain it to the error of rounding are certain; otherwise the attack has only a ranking, and nothing is
    counted.
    """

    name = "own-adapter-words"
    text = "number of words that the server can solve for from the update of adapters (adapter-words)"
    actions: ClassVar[tuple[Action, ...]] = ("refuse", "noise", "log")
    exact = True
    limited = True

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measured | None:
        if message.sent is None:
            return None
        found = estimate_of("attacks.words.adapter_words.AdapterWords", message, policy)
        words = int(found.decisions[0].sum()) if bool((found.expected == 1).all()) else 0
        return measured(words, policy.limits.get(self.name, 0), f"the server can solve for {words} words")
