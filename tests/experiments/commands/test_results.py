"""Folders of results are made before the work, and what cannot be one is named."""

from pathlib import Path

import pytest

import attack
from experiments.commands import audit as command
from experiments.commands.results_folder import results_folder
from protocol.errors import InputError
from tests.toys import train as train_toy


def test_a_folder_of_results_is_made_empty(tmp_path: Path) -> None:
    with results_folder(tmp_path / "a/b") as folder:
        assert folder == tmp_path / "a/b"
        assert not list(folder.iterdir())


@pytest.mark.parametrize("results", [(), ("scores.csv",)])
def test_a_folder_stays_after_a_failure_if_it_holds_results(results: tuple[str, ...], tmp_path: Path) -> None:
    def work() -> None:
        with results_folder(tmp_path / "a/b") as folder:
            for name in results:
                (folder / name).write_text("1")
            raise ValueError("work")

    with pytest.raises(ValueError, match="work"):
        work()
    assert (tmp_path / "a").exists() == bool(results)
    assert tmp_path.exists()


@pytest.mark.parametrize("place", ["mine", "mine/below"])
def test_a_file_in_its_place_is_named(place: str, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(InputError, match=f"the file {tmp_path / 'mine'}"), results_folder(tmp_path / place):
        pass


@pytest.mark.integration
def test_an_audit_runs_no_attack_before_its_folder_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train_toy(tmp_path, rounds=1)
    monkeypatch.setattr(command, "run_audit", lambda *_, **__: pytest.fail("it attacked"))
    assert attack.main(["audit", "--deltas", str(tmp_path / "deltas"), "--out", "/proc/self/fedleak"]) == 2
    assert "--out" in capsys.readouterr().err
