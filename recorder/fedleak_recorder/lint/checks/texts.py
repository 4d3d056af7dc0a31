"""Texts: sentences, columns of words, and bytes that are text, JSON, images or other files."""

from collections import Counter
from collections.abc import Iterator

from fedleak_recorder.lint.any_message import AnyMessage
from fedleak_recorder.lint.file_kinds import ARCHIVE, PICKLE, TREES, kind_of
from fedleak_recorder.lint.finding import Finding
from fedleak_recorder.lint.settings import Settings

_LONGEST = 100
"""Characters of a setting."""
_MOST_WORDS = 6
"""Words of a setting."""
_FEWEST = 8
"""Different texts of a list that are a column of data."""


def findings(message: AnyMessage, settings: Settings) -> Iterator[Finding]:  # noqa: ARG001 - as every check
    """Texts beyond the short words of settings, and bytes that are files of other kinds than numbers."""
    in_lists: Counter[str] = Counter()
    distinct: dict[str, set[str]] = {}
    for name, text in message.texts.items():
        if len(text) > _LONGEST or len(text.split()) > _MOST_WORDS:
            yield Finding("text", f"a text of {len(text)} characters in {len(text.split())} words", name, "certain")
            continue
        parent, _, last = name.rpartition("/")
        if last.isdecimal():
            in_lists[parent] += 1
            distinct.setdefault(parent, set()).add(text)
    for parent, texts in distinct.items():
        if len(texts) >= _FEWEST:
            yield Finding("text", f"a list of {in_lists[parent]} texts, {len(texts)} different", parent, "likely")
    for name, content in message.contents.items():
        kind = kind_of(content)
        if kind and kind not in (PICKLE, ARCHIVE, TREES):
            yield Finding("text", f"{len(content)} bytes that are {kind}", name, "likely")
