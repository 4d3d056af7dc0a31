"""Results go into a folder of their own: not into a recording, not among other files, one command at a time."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedleak.commands import program
from fedleak.commands.shared.results_place import LOCK, check_results_place, only_command
from fedleak.core.errors import InputError
from fedleak.recordings.recording import Recording
from tests.places import ROOT
from tests.watch_toys import LIMIT, recorder, write_round


@pytest.fixture
def deltas(tmp_path: Path) -> Path:
    with recorder(tmp_path / "run" / "deltas") as opened:
        write_round(opened, 0)
    return tmp_path / "run" / "deltas"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


PLACES = ("deltas", "deltas/results", "deltas/rounds", "deltas/truth/results", "../own", "..")
COMMANDS = {
    "audit": ["audit", "DELTAS"],
    "part": ["audit", "DELTAS", "--part", "0/2"],
    "what-if": ["audit", "DELTAS", "--what-if", "configs/what_if.yaml"],
    "run": ["run", "DELTAS", "--attack", "release-check"],
    "convert": ["convert", "DELTAS"],
    "watch": ["watch", "DELTAS", "--gate", LIMIT],
    "report": ["report", "RUN", "RUN"],
    "reproduce": ["reproduce", "raifle_table13"],
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("command", COMMANDS)
def test_results_in_a_recording_or_among_other_files_are_refused(
    command: str, place: str, deltas: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "thesis.txt").write_text("mine")
    before = contents(tmp_path)
    given = {"DELTAS": str(deltas), "RUN": str(deltas.parent)}
    words = [given.get(word, word) for word in COMMANDS[command]]
    assert program.main([*words, "--out", str(deltas.parent / place)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "expected" in said
    assert contents(tmp_path) == before


def test_the_root_of_all_folders_is_no_place_for_results() -> None:
    with pytest.raises(InputError, match="found /, the root of all folders"):
        check_results_place("/")


def test_copy_of_a_recording_does_not_make_its_own_folder_above_a_recording(
    deltas: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["convert", str(deltas), "--out", str(deltas.parent)]) == 2
    assert "does not contain the recording" in capsys.readouterr().err
    assert not (deltas.parent / "manifest.json").exists()


def test_link_to_a_recording_is_refused_too(deltas: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(deltas)
    for place in (tmp_path / "link", tmp_path / "link" / "results", deltas / ".." / "deltas" / "results"):
        with pytest.raises(InputError, match="outside of every recording"):
            check_results_place(place)


def test_folder_of_earlier_results_is_taken_again(deltas: Path, tmp_path: Path) -> None:
    words = ["run", str(deltas), "--attack", "release-check", "--out", str(tmp_path / "results")]
    assert [program.main(words) for _ in range(2)] == [0, 0]
    check_results_place(deltas.parent, recordings=[deltas])  # the default folder of an audit
    (tmp_path / "results" / "results.json").write_text('{"results": "of something else"}')
    with pytest.raises(InputError, match="something else"):
        check_results_place(tmp_path / "results")


def test_folder_that_a_killed_submitter_left_is_taken_again(tmp_path: Path) -> None:
    """Jobs write the first cell; until then only the engine's own folder is there."""
    (tmp_path / "engine").mkdir()
    with pytest.raises(InputError, match="other files"):
        check_results_place(tmp_path)
    (tmp_path / "engine" / ".lock").touch()
    check_results_place(tmp_path)


def test_files_that_a_command_reads_may_lie_where_its_results_go(tmp_path: Path) -> None:
    system = tmp_path / "system.yaml"
    system.write_text("name: mine")
    check_results_place(tmp_path, inputs=[system, None])
    (tmp_path / "letter.txt").write_text("of a person")
    with pytest.raises(InputError, match=r"letter\.txt"):
        check_results_place(tmp_path, inputs=[system])


def test_default_folder_holds_what_a_person_has_put_there(deltas: Path) -> None:
    (deltas.parent / "notes.txt").write_text("mine")
    words = ["run", str(deltas), "--attack", "release-check"]
    assert program.main(words) == 0
    assert Recording(deltas).rounds == [0]


@pytest.mark.parametrize(("first", "second", "refused"), [(0, 0, True), (0, 1, True), (1, 0, True), (1, 1, False)])
def test_two_commands_in_one_folder(first: int, second: int, refused: bool, tmp_path: Path) -> None:
    with only_command(tmp_path, shared=bool(first)):
        if refused:
            with pytest.raises(InputError, match="no other command"), only_command(tmp_path, shared=bool(second)):
                pass
        else:
            with only_command(tmp_path, shared=True):
                pass
            assert (tmp_path / LOCK).exists()  # the other part goes on
    assert list(tmp_path.iterdir()) == []


def test_second_audit_of_a_folder_leaves_the_gate_of_the_first(deltas: Path, tmp_path: Path) -> None:
    out = tmp_path / "results"
    out.mkdir()
    with only_command(out):
        (out / "gate.xml").write_text("of the first")
        assert program.main(["audit", str(deltas), "--out", str(out)]) == 2
        assert (out / "gate.xml").read_text() == "of the first"


@pytest.mark.integration
def test_lock_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from fedleak.commands.shared.results_place import only_command\n"
        "with only_command(Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, check=False).returncode == -9
    assert (tmp_path / LOCK).exists()
    check_results_place(tmp_path)
    with only_command(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []
