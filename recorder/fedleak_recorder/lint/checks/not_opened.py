"""Pickles and archives, which are named and not opened."""

from collections.abc import Iterator

from fedleak_recorder.lint.any_message import AnyMessage
from fedleak_recorder.lint.file_kinds import ARCHIVE, PICKLE, kind_of
from fedleak_recorder.lint.finding import Finding
from fedleak_recorder.lint.settings import Settings


def findings(message: AnyMessage, settings: Settings) -> Iterator[Finding]:  # noqa: ARG001 - as every check
    """Parts that can run code or hide other files."""
    for name, kind in message.unopened.items():
        yield Finding("not-opened", f"{kind}, which is not opened", name, "certain")
    for name, content in message.contents.items():
        kind = kind_of(content)
        if kind in (PICKLE, ARCHIVE):
            yield Finding("not-opened", f"{len(content)} bytes that are {kind}, which is not opened", name, "likely")
