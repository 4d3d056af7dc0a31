"""Tables of plain text."""

from collections.abc import Sequence


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of text with columns under one another and a rule below the header.

    Args:
        header: names of the columns.
        rows: a text for each column.
    """
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    padded = [map(str.ljust, row, widths) for row in (header, *rows)]
    lines = [" ".join(cells).rstrip() for cells in padded]
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]
