"""Tables of text: wrapped columns keep every word and the width."""

import pytest

from fedleak.reports.text_table import wrapped_table

ROWS = [("raifle", "`max_iter` simulated trainings per victim", "served, lists"), ("chance", "none", "a\nb")]


@pytest.mark.parametrize("width", [30, 45, 80])
def test_wrapped_rows_keep_their_words_and_the_width(width: int) -> None:
    lines = wrapped_table(("name", "cost", "needs"), ROWS, width)
    assert max(map(len, lines)) <= width
    words = sorted(word for row in ROWS for cell in row for word in cell.split())
    assert sorted(" ".join(lines[2:]).split()) == words


def test_words_are_not_broken_where_the_width_is_too_small() -> None:
    assert "trainings" in " ".join(wrapped_table(("name", "cost", "needs"), ROWS, 5)).split()


def test_lines_of_a_cell_stay_apart() -> None:
    assert [line.split()[-1] for line in wrapped_table(("name", "cost", "needs"), ROWS[1:], 80)[2:]] == ["a", "b"]
