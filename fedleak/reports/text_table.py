"""Tables of plain text."""

import textwrap
from collections.abc import Sequence
from itertools import zip_longest

_GAP = "  "


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool] = ()) -> list[str]:
    """Lines of text with columns under one another and a rule below the header; numeric columns are aligned right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in (header, *rows):
        padded = []
        for cell, width, is_number in zip(row, widths, numeric or [False] * len(widths), strict=True):
            padded.append(cell.rjust(width) if is_number else cell.ljust(width))
        lines.append(" ".join(padded).rstrip())
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]


def wrapped_table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Lines of text in columns that are wrapped between words, the widest ones first, to a width of all together.

    A column is never narrower than its longest word, so that a table of long words may be wider. Cells may have
    several lines.

    Example:
        >>> for line in wrapped_table(("name", "cost"), [("raifle", "many simulated trainings")], 20):
        ...     print(line)
        name    cost
        -----------------
        raifle  many
                simulated
                trainings
    """
    # Each column's width without wrapping, and the least that it can have.
    widths = []
    longest_words = []
    for column in zip(header, *rows, strict=True):
        text = "\n".join(column)
        widths.append(max(map(len, text.split("\n"))))
        longest_words.append(max(map(len, text.split() or [""])))
    # The widest column that can be wrapped gives one character at a time.
    while sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        wrappable = [position for position, longest in enumerate(longest_words) if widths[position] > longest]
        if not wrappable:
            break
        widest = max(wrappable, key=lambda position: widths[position])
        widths[widest] -= 1
    lines = []
    for row in (header, *rows):
        lines += _wrapped(row, widths)
    return [lines[0], "-" * min(width, max(map(len, lines))), *lines[1:]]


def _wrapped(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Lines of one row."""
    cells = []
    for cell, width in zip(row, widths, strict=True):
        wrapped: list[str] = []
        for line in cell.split("\n"):
            wrapped += textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False)
        cells.append(wrapped)
    lines = []
    for parts in zip_longest(*cells, fillvalue=""):
        padded = [part.ljust(width) for part, width in zip(parts, widths, strict=True)]
        lines.append(_GAP.join(padded).rstrip())
    return lines
