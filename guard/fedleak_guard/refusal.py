"""The error by which a message is kept at the site."""

from collections.abc import Sequence

from fedleak_recorder.errors import InputError


class RefusedError(Exception):
    """A message that does not leave the site; the text is one line that says why.

    The text may name tensors and measured numbers. It belongs into the site's own log and not into logs that a
    framework sends to the server; those get `public`, and the server gets `TO_THE_SERVER`.

    Args:
        reasons: what was found, as sentences.
        entry: number of the log's entry with the reasons; None if none could be written.
    """

    TO_THE_SERVER = "the site's guard refused the message"

    def __init__(self, reasons: Sequence[str], entry: int | None = None) -> None:
        self.reasons = tuple(" ".join(reason.split()) for reason in reasons)
        self.entry = entry
        super().__init__(f"nothing left the site: {'; '.join(self.reasons)}")

    @property
    def public(self) -> str:
        """One line without what was measured: where the reasons are, or the error that kept them out of the log."""
        if self.entry is None:
            return str(self)
        return f"nothing left the site: entry {self.entry} of its log says why"

    def __reduce__(self) -> tuple[object, ...]:
        return RefusedError, (self.reasons, self.entry)


def reason_of(error: BaseException) -> str:
    """One line on an error that stopped a check."""
    text = " ".join(str(error).split())
    if isinstance(error, InputError):
        return text
    return f"{type(error).__name__}: {text or 'no message'}"
