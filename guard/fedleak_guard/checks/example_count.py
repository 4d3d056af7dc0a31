"""Number of training examples that the client reports."""

from fedleak_guard.check import Check, Measurement
from fedleak_guard.message import Message
from fedleak_guard.policy import Policy


class ExampleCount(Check):
    """Number of training examples, against ``update.min_examples`` of a message with tensors, and ``max_examples``.

    An unknown number is too small.
    """

    name = "example-count"
    text = "number of training examples that the client reports"

    @classmethod
    def lacking(cls, policy: Policy) -> str:
        limits = policy.update.min_examples, policy.update.max_examples
        return "update.min_examples" if limits == (None, None) else ""

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measurement | None:
        least = policy.update.min_examples
        most = policy.update.max_examples
        if message.sent is None:
            # Metrics alone say nothing of the few examples that tensors could be computed from.
            least = None
        if least is None and (most is None or message.examples is None):
            return None
        count = message.examples
        count_in_words = str(count)
        if count is None:
            count = -1  # below every limit
            count_in_words = "an unknown number of"
        too_few = least is not None and count < least
        too_many = most is not None and count > most
        wanted = f"at most {most}" if too_many else f"{least}"
        sentence = f"{count_in_words} training examples, where the policy asks for {wanted}"
        return Measurement(value=count, found=too_few or too_many, sentence=sentence)
