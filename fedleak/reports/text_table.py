"""Tables of plain text."""

import textwrap
from collections.abc import Sequence
from itertools import zip_longest

_GAP = "  "


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool] = ()) -> list[str]:
    """Lines of text with columns under one another and a rule below the header; numeric columns are aligned right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    sides = [">" if right else "<" for right in numeric] or ["<"] * len(widths)
    formats = [f"{side}{width}" for side, width in zip(sides, widths, strict=True)]
    padded = [[format(cell, form) for cell, form in zip(row, formats, strict=True)] for row in (header, *rows)]
    lines = [" ".join(cells).rstrip() for cells in padded]
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
    columns = list(zip(header, *rows, strict=True))
    widths = [max(len(line) for cell in column for line in cell.split("\n")) for column in columns]
    least = [max(len(word) for cell in column for word in (cell.split() or [""])) for column in columns]
    while sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        wide = [place for place, own in enumerate(widths) if own > least[place]]
        if not wide:
            break
        widths[max(wide, key=widths.__getitem__)] -= 1
    lines = [line for row in (header, *rows) for line in _wrapped(row, widths)]
    return [lines[0], "-" * min(width, max(map(len, lines))), *lines[1:]]


def _wrapped(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Lines of one row."""
    options: dict[str, bool] = {"break_long_words": False, "break_on_hyphens": False}
    cells = [
        [part for line in cell.split("\n") for part in textwrap.wrap(line, width, **options)]  # type: ignore[arg-type]
        for cell, width in zip(row, widths, strict=True)
    ]
    parts = zip_longest(*cells, fillvalue="")
    return [_GAP.join(part.ljust(width) for part, width in zip(line, widths, strict=True)).rstrip() for line in parts]
