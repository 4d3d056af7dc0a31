"""Number of training examples that the client reports."""

from fedleak_guard.check import Check, Measured
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

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measured | None:
        least, most = policy.update.min_examples, policy.update.max_examples
        if message.sent is None:
            least = None
        if least is None and (most is None or message.examples is None):
            return None
        count = -1 if message.examples is None else message.examples
        known = "an unknown number of" if count < 0 else str(count)
        too_few = least is not None and count < least
        too_many = most is not None and count > most
        asked = f"at most {most}" if too_many else f"{least}"
        sentence = f"{known} training examples, where the policy asks for {asked}"
        return Measured(value=count, found=too_few or too_many, sentence=sentence)
