"""The lint of messages that are recorded: of the first ones, with one warning."""

import contextlib
import warnings
from collections.abc import Mapping, Sequence

from fedleak_recorder.errors import InputError
from fedleak_recorder.lint.any_message import AnyMessage
from fedleak_recorder.lint.finding import Finding
from fedleak_recorder.lint.linting import linted
from fedleak_recorder.sent import Sent

_MOST_MESSAGES = 16
"""Messages that are looked at: a client's code does not change while it trains."""


class LintOfRecorded:
    """Looks at the first messages of a recording, and warns once of each kind of finding in each part.

    Attributes:
        findings: what was found, each part once.
    """

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self._looked = 0

    def look(self, message: Sent, where: str) -> None:
        """Looks at a message, unless enough were looked at; never an error, as recording does not depend on it."""
        if self._looked >= _MOST_MESSAGES:
            return
        self._looked += 1
        findings = _findings_of(message)
        known = {(finding.kind, finding.where) for finding in self.findings}
        fresh = [finding for finding in findings if (finding.kind, finding.where) not in known]
        fresh = [finding for finding in fresh if finding.how_sure != "possible"]
        self.findings += fresh
        if fresh:
            sentences = "; ".join(f"{finding.kind}: {finding.sentence}" for finding in fresh[:3])
            more = f" and {len(fresh) - 3} more" if len(fresh) > 3 else ""
            warnings.warn(
                f"{where} holds more than an update: {sentences}{more}. {fresh[0].way_out}", UserWarning, stacklevel=2
            )


def _findings_of(message: Sent) -> list[Finding]:
    """What of a message is more than an update: of its arrays, and of what was sent beside them."""
    arrays = message.arrays
    if isinstance(arrays, Sequence):
        arrays = {str(place): value for place, value in enumerate(arrays)}
    # Anything else is refused by the recorder itself.
    if not isinstance(arrays, Mapping):
        return []
    for parts in ({"arrays": arrays, **message.beside}, {"arrays": arrays}):
        # What is no array is refused by the recorder itself, with what it expected; what is beside may be anything.
        with contextlib.suppress(InputError, TypeError, ValueError, OverflowError):
            examples = int(message.examples)
            if examples != message.examples:
                return []
            # A count of 0 says that it is unknown.
            return linted(AnyMessage.of(parts, examples=examples or None))
    return []
