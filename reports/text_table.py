"""Tables of plain text."""

from collections.abc import Sequence


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool] = ()) -> list[str]:
    """Lines of text with columns under one another and a rule below the header; numeric columns are aligned right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    sides = [">" if right else "<" for right in numeric] or ["<"] * len(widths)
    formats = [f"{side}{width}" for side, width in zip(sides, widths, strict=True)]
    padded = [[format(cell, form) for cell, form in zip(row, formats, strict=True)] for row in (header, *rows)]
    lines = [" ".join(cells).rstrip() for cells in padded]
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]
