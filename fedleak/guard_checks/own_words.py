"""The client's words that the server can read off the embedding table."""

from fedleak.attacks.words.estimates import WordSetEstimate
from fedleak.attacks.words.touched_rows import TouchedRows
from fedleak.guard_checks.own_estimate import estimate_of_round, own_view
from fedleak_guard.check import NotMadeError
from fedleak_guard.declared_checks import OwnWords
from fedleak_guard.message import Message
from fedleak_guard.policy import Policy


class WordsByTouchedRows(OwnWords):
    """Words whose rows of the embedding table move, where others do not (touched-rows)."""

    def attacked(self, message: Message, policy: Policy) -> tuple[float, str]:
        estimate = estimate_of_round(TouchedRows(), WordSetEstimate, own_view(message, policy))
        words = int(estimate.decisions.sum())
        possible = int(estimate.decisions.shape[1])
        # Weight decay and momentum move rows of words that no record has.
        if words == possible:
            raise NotMadeError("all rows of the embedding table move, so that no set of words follows")
        return words, f"the server can read {words} words of {possible}"
