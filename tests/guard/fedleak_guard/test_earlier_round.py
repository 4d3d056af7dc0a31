"""What the site keeps of the last round: its own user's alone, and a clear error where it is damaged."""

from pathlib import Path

import numpy as np
import pytest

from fedleak_guard import Guard
from fedleak_guard.earlier_round import earlier_round, keep_round
from fedleak_guard.policy import Policy, read_policy
from fedleak_recorder.errors import InputError
from tests.guard_toys import message, model, write_policy


def kept(folder: Path) -> tuple[Policy, Path]:
    """A policy, and the file of the round that was kept under it."""
    policy = read_policy(write_policy(folder))
    keep_round(message(), policy)
    (path,) = (folder / "evidence/earlier").iterdir()
    return policy, path


def test_the_model_is_kept_for_the_sites_own_user(tmp_path: Path) -> None:
    policy, path = kept(tmp_path)
    found = earlier_round(policy, "job")
    assert found is not None
    assert all(np.array_equal(found.model[name], value) for name, value in model().items())
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert earlier_round(policy, "another job") is None


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"text", b"\x80\x04N."])
def test_a_damaged_file_is_said_so(tmp_path: Path, content: bytes) -> None:
    policy, path = kept(tmp_path)
    path.write_bytes(content)
    with pytest.raises(InputError, match="the model of the round before"):
        earlier_round(policy, "job")
    keep_round(message(), policy)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InputError, match="the model of the round before"):
        earlier_round(policy, "job")


def test_what_a_killed_process_left_is_removed_with_the_next_message(tmp_path: Path) -> None:
    guard = Guard(write_policy(tmp_path, "received: {record: true}\n"))
    guard.release(message(0))
    (file,) = (tmp_path / "evidence/earlier").iterdir()
    left = file.with_name(f".{file.name}.{2**30}.tmp")  # of a number that no process has
    left.write_bytes(b"a model")
    guard.release(message(1))
    assert [*file.parent.iterdir()] == [file]
