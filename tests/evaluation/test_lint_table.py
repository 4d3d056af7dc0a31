"""An audit says what in the messages of a recording is more than an update, without an attack."""

from pathlib import Path

import pytest

from fedleak.commands import program
from fedleak.evaluation.lint_table import lint_table
from fedleak.recordings.recording import Recording
from fedleak_recorder import Recorder
from fedleak_recorder.arrays import Array
from tests.lint_toys import draws_of, network, table


def recording_of(folder: Path, arrays: dict[str, Array]) -> Path:
    shapes = {name: value.shape for name, value in arrays.items()}
    with Recorder(folder, holds="deltas", parameters=shapes) as recorder:
        for number in range(2):
            recorder.round(number, None, dict.fromkeys(("a", "b", "c"), (arrays, 300)))
    return folder


@pytest.mark.filterwarnings("ignore:.*holds more than an update")
def test_rows_under_the_name_of_a_weight_are_a_row(tmp_path: Path) -> None:
    arrays = {**network(draws_of(0)), "3.weight": table(draws_of(0), 40).astype("f")}
    findings = lint_table(Recording(recording_of(tmp_path / "run", arrays)))
    assert findings[["tensor", "what", "messages"]].to_numpy().tolist() == [["3.weight", "raw-rows", "6 of 6"]]


def test_updates_are_no_row(tmp_path: Path) -> None:
    assert len(lint_table(Recording(recording_of(tmp_path / "run", network(draws_of(0)))))) == 0


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore:.*holds more than an update")
def test_the_page_of_an_audit_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_figures: None) -> None:
    monkeypatch.chdir(tmp_path)
    folder = recording_of(tmp_path / "run", {"weight": table(draws_of(0), 40).astype("f")})
    assert program.main(["audit", str(folder), "--out", str(tmp_path / "out")]) == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "What the messages hold beside an update" in page
    assert "6 of 6" in page
