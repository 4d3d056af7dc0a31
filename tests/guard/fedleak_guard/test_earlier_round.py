"""The model of the round before is kept in one file, whatever was killed while it was written."""

from pathlib import Path

from fedleak_guard import Guard
from tests.guard_toys import message, write_policy


def test_what_a_killed_process_left_is_removed_with_the_next_message(tmp_path: Path) -> None:
    guard = Guard(write_policy(tmp_path, "received: {record: true}\n"))
    guard.release(message(0))
    (kept,) = (tmp_path / "evidence/earlier").iterdir()
    left = kept.with_name(f".{kept.name}.{2**30}.tmp")  # of a number that no process has
    left.write_bytes(b"a model")
    guard.release(message(1))
    assert [*kept.parent.iterdir()] == [kept]
