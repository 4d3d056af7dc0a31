from pathlib import Path

import pytest

from fedleak.core.errors import InputError
from fedleak.recordings.complete_rounds import complete_rounds
from fedleak_recorder.journal import append_journal, journal_name, read_journal
from tests.watch_toys import recorder, write_round


def test_rounds_are_those_of_the_journal(tmp_path: Path) -> None:
    folder = tmp_path / "deltas"
    assert complete_rounds(folder).rounds == {}
    with recorder(folder) as open_recorder:
        write_round(open_recorder, 1)
        first = complete_rounds(folder)
        write_round(open_recorder, 2)
        second = complete_rounds(folder)
    assert [*first.rounds] == [1]
    assert [*second.rounds] == [1, 2]
    assert second.rounds[1] == first.rounds[1] != second.rounds[2]
    assert not second.closed
    assert complete_rounds(folder).closed


def test_line_that_is_half_written_is_no_round(tmp_path: Path) -> None:
    open_recorder = recorder(tmp_path)
    for number in (0, 1):
        write_round(open_recorder, number)
    journal = tmp_path / journal_name(0)
    journal.write_bytes(journal.read_bytes()[:-20])
    assert [*complete_rounds(tmp_path).rounds] == [0]


def test_round_that_one_rank_lacks_is_not_complete(tmp_path: Path) -> None:
    open_recorder = recorder(tmp_path)
    for number in (0, 1):
        write_round(open_recorder, number)
    lines = read_journal(tmp_path / journal_name(0)).lines
    append_journal(tmp_path, 1, [line for line in lines if line.round == 0])
    assert [*complete_rounds(tmp_path).rounds] == [0]


def test_damaged_journal_is_refused(tmp_path: Path) -> None:
    open_recorder = recorder(tmp_path)
    for number in (0, 1):
        write_round(open_recorder, number)
    journal = tmp_path / journal_name(0)
    journal.write_text("{}\n" + journal.read_text())
    with pytest.raises(InputError, match="journal"):
        complete_rounds(tmp_path)
