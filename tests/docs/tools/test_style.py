"""The counts say what a reader must hold, and vague names that live long only become fewer."""

from pathlib import Path

import pytest

from docs.tools import style

LONG_LIVED_VAGUE_NAMES = 5
"""How many there are. It only falls: lower it when a name goes; a new one has a name that says what it is."""

PACKED = """
def mean(found, other):
    kept = [row for row in found if row]  # rows with numbers
    total = sum(kept)
    count = len(kept)
    share = total / count if count else 0
    return share, kept
"""


def counts_of_text(folder: Path, text: str) -> style.Counts:
    (folder / "code.py").write_text(text)
    return style.counts_of([folder])


def test_counts_of_a_function_are_those_by_hand(tmp_path: Path) -> None:
    counts = counts_of_text(tmp_path, PACKED)
    assert counts.code_lines == 6
    assert counts.comments == counts.conditionals == counts.comprehensions == 1
    # Names that are assigned: kept, row, total, count, share.
    assert (counts.assigned_names, counts.vague) == (5, 1)
    assert counts.tokens == 8 + 11 + 6 + 6 + 9 + 4


def test_a_vague_name_lives_long_if_it_is_used_over_more_than_three_lines(tmp_path: Path) -> None:
    (place,) = counts_of_text(tmp_path, PACKED).long_lived
    # `found` lives two lines, `other` is on the longer list only.
    assert place == f"{tmp_path / 'code.py'}:3 kept in mean"


def test_a_docstring_and_an_empty_line_are_no_code(tmp_path: Path) -> None:
    assert counts_of_text(tmp_path, '"""Says.\nMore.\n"""\n\nx = 1\n').code_lines == 1


def test_functions_to_read_are_those_with_vague_names(tmp_path: Path) -> None:
    counts_of_text(tmp_path, PACKED + "\n\ndef plain(x):\n    return x\n")
    (function,) = style.functions_to_read([tmp_path])
    assert "mean" in function
    assert function.endswith("found kept other")


@pytest.mark.integration
def test_the_table_has_a_row_for_each_room_and_peer() -> None:
    report = style.report()
    for title in (*style.ROOMS, *style.PEERS):
        assert f"| {title} |" in report


@pytest.mark.integration
@pytest.mark.inventory
def test_vague_names_that_live_long_only_become_fewer() -> None:
    long_lived = style.counts_of(style.our_source()).long_lived
    assert len(long_lived) == LONG_LIVED_VAGUE_NAMES, "\n".join(long_lived)
