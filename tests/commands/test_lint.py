"""The exit status says whether a message has findings, and each is printed with its way out."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedleak.commands import program
from tests.lint_toys import draws_of, network, table


def write(path: Path, **arrays: object) -> Path:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def test_an_update_has_no_finding_and_rows_have_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draws = draws_of(0)
    honest = write(tmp_path / "update.npz", **network(draws))
    leaking = write(tmp_path / "rows.npz", weight=table(draws, 40))
    assert program.main(["lint", str(honest)]) == 0
    assert capsys.readouterr().out.startswith("no finding in 1 message. ")
    assert program.main(["lint", str(leaking)]) == 1
    said = capsys.readouterr().out
    assert said.startswith("raw-rows:\n  rows.npz: weight: 40 x 6 ")
    assert "way out: Send a sum" in said
    assert said.endswith("1 finding in 1 message.\n")


def test_a_folder_is_read_whole_and_what_grows_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draws = draws_of(0)
    for count in (20, 33, 58):
        message = {"codes": draws.normal(size=(count, 3)).tolist(), "num-examples": count}
        (tmp_path / f"site {count}.json").write_text(json.dumps(message))
    assert program.main(["lint", str(tmp_path), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["messages"] == 3
    growing = [row for row in said["findings"] if row["kind"] == "grows"]
    assert [row["where"] for row in growing] == ["codes"]
    assert growing[0]["message"] == "all 3 messages"


def test_options_decide(tmp_path: Path) -> None:
    losses = write(tmp_path / "losses.npz", losses=draws_of(0).random(41))
    assert program.main(["lint", str(losses)]) == 0
    assert program.main(["lint", str(losses), "--examples", "41"]) == 1
    (tmp_path / "sums.json").write_text('{"age_sum": 211.5, "age_count": 7}')
    assert program.main(["lint", str(tmp_path / "sums.json")]) == 0
    assert program.main(["lint", str(tmp_path / "sums.json"), "--minimum", "10"]) == 1


@pytest.mark.parametrize("words", [["nothing.npz"], ["damaged.npz"], ["empty"], ["a.txt", "--minimum", "0"]])
def test_mistakes_are_one_line_with_status_2(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "damaged.npz").write_bytes(b"PK\3\4 no archive")
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "empty").mkdir()
    assert program.main(["lint", str(tmp_path / words[0]), *words[1:]]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_names_of_strangers_are_printed_with_escapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"\x1b[2J patient_id": 5}))
    assert program.main(["lint", str(tmp_path / "a.json")]) == 1
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "\\x1b[2J patient_id" in said


@pytest.mark.integration
def test_it_starts_without_torch(tmp_path: Path) -> None:
    path = write(tmp_path / "update.npz", **network(draws_of(0)))
    code = f"from fedleak.commands import program; assert program.main(['lint', {str(path)!r}]) == 0"
    code += "\nimport sys; print({name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = eval(done.stdout.splitlines()[-1])
    assert "fedleak_recorder" in modules
    assert modules & {"torch", "pandas", "scipy", "sklearn", "lightning", "matplotlib"} == set()
