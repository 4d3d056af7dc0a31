"""The client's words that the server can solve for from the update of adapters."""

from fedleak.attacks.words.adapter_words import AdapterWords
from fedleak.attacks.words.estimates import WordSetEstimate
from fedleak.guard_checks.own_estimate import estimate_of_round, own_view
from fedleak_guard.declared_checks import OwnAdapterWords
from fedleak_guard.message import Message
from fedleak_guard.policy import Policy


class WordsByAdapters(OwnAdapterWords):
    """Words that explain the update of low-rank adapters (adapter-words); needs the client's algorithm.

    Words that explain it to the error of rounding are certain; otherwise the attack has only a ranking, and nothing is
    counted.
    """

    def attacked(self, message: Message, policy: Policy) -> tuple[float, str]:
        estimate = estimate_of_round(AdapterWords(), WordSetEstimate, own_view(message, policy))
        words = 0
        if bool((estimate.expected == 1).all()):
            words = int(estimate.decisions[0].sum())
        return words, f"the server can solve for {words} words"
