"""The client's words that the server can read off the embedding table."""

from fedleak_guard.check import NotMadeError
from fedleak_guard.message import Message
from fedleak_guard.own_attack import OwnAttack, estimate_of
from fedleak_guard.policy import Policy


class OwnWords(OwnAttack):
    """Words whose rows of the embedding table move, where others do not (touched-rows)."""

    name = "own-words"
    text = "number of words that the server can read off the rows of an embedding table (touched-rows)"

    def attacked(self, message: Message, policy: Policy) -> tuple[float, str]:
        found = estimate_of("fedleak.attacks.words.touched_rows.TouchedRows", message, policy)
        words, possible = int(found.decisions.sum()), int(found.decisions.shape[1])
        if words == possible:
            raise NotMadeError("all rows of the embedding table move, so that no set of words follows")
        return words, f"the server can read {words} words of {possible}"
