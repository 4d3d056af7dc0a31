"""The client's words that the server can solve for from the update of adapters."""

from fedleak_guard.message import Message
from fedleak_guard.own_attack import OwnAttack, estimate_of
from fedleak_guard.policy import Policy


class OwnAdapterWords(OwnAttack):
    """Words that explain the update of low-rank adapters (adapter-words); needs the client's algorithm.

    Words that explain it to the error of rounding are certain; otherwise the attack has only a ranking, and nothing is
    counted.
    """

    name = "own-adapter-words"
    text = "number of words that the server can solve for from the update of adapters (adapter-words)"

    def attacked(self, message: Message, policy: Policy) -> tuple[float, str]:
        found = estimate_of("fedleak.attacks.words.adapter_words.AdapterWords", message, policy)
        words = int(found.decisions[0].sum()) if bool((found.expected == 1).all()) else 0
        return words, f"the server can solve for {words} words"
