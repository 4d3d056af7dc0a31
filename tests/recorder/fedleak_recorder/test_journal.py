"""Journals: a line is whole, whatever a crash left before it."""

from pathlib import Path

import pytest

from fedleak_recorder.journal import append_journal, close_journal, journal_name, read_journal


@pytest.mark.parametrize("left", ["", "{", '{"file": "rounds/00'])
@pytest.mark.parametrize("whole", ["", '{"closed": 0}\n'])
def test_half_a_line_is_removed_with_the_next_one(tmp_path: Path, left: str, whole: str) -> None:
    path = tmp_path / journal_name(0)
    path.write_text(whole + left)
    append_journal(tmp_path, 0, [])
    close_journal(tmp_path, 0, 0)
    assert path.read_text() == whole + '{"closed": 0}\n'
    assert read_journal(path).closed
