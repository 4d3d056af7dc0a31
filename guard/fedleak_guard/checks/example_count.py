"""Number of training examples behind the update."""

from fedleak_guard.check import Check, Measured
from fedleak_guard.message import Message
from fedleak_guard.policy import Policy


class ExampleCount(Check):
    """Number of training examples that the client reports, against ``update.min_examples``.

    An unknown number is too small.
    """

    name = "example-count"
    text = "number of training examples that the client reports"

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measured | None:
        least = policy.update.min_examples
        if least is None or message.sent is None:
            return None
        count = -1 if message.examples is None else message.examples
        known = "an unknown number of" if count < 0 else str(count)
        return Measured(
            value=count, found=count < least, sentence=f"{known} training examples, where the policy asks for {least}"
        )
