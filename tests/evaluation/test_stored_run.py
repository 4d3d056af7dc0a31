"""A stored run is read back as it was, from evaluation.json alone; results.json is what it says to others."""

import json
from pathlib import Path

import pytest

from fedleak.commands import program
from fedleak.core.errors import InputError
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.scores import concat, score_table
from fedleak.evaluation.stored_run import read_results, read_run, store_run
from tests.reports.toys import RUN_LINES, run

DATA = {"name": "d", "sha256": "0"}


def stored(folder: Path) -> Path:
    rows = [
        score_table(name, {"auc": [0.8, 0.9]}, setting={"data": "d"}, seed=0, victims=[1, 2])
        for name in ("direction", "chance")
    ]
    store_run(folder, run(), Evaluation(scores=concat(rows), lines=RUN_LINES), DATA)
    return folder


def test_a_run_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    folder = stored(tmp_path / "run")
    back = read_run(folder)
    assert (back.name, back.data) == ("run", DATA)
    assert back.evaluation.lines == RUN_LINES
    assert back.evaluation.scores["value"].tolist() == [0.8, 0.9, 0.8, 0.9]
    assert back.results is not None
    assert back.results.json() == (folder / "results.json").read_bytes() == run().json()


def test_results_json_is_not_read(tmp_path: Path) -> None:
    folder = stored(tmp_path / "run")
    (folder / "results.json").write_text("{}")
    assert program.main(["report", str(folder), "--out", str(tmp_path / "page")]) == 0
    assert program.main(["export", str(folder), "--to", "sarif"]) == 0
    assert read_results(folder).json() == run().json()


@pytest.mark.parametrize("name", ["mean", "experiment"])
def test_a_changed_result_is_noticed(tmp_path: Path, name: str) -> None:
    folder = stored(tmp_path)
    content = json.loads((folder / "evaluation.json").read_text())
    place = content["run"] if name in content["run"] else content["run"]["results"][0]
    place[name] = 0.5 if name == "mean" else "another"
    (folder / "evaluation.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="other bytes than were written"):
        read_run(folder)


def test_a_run_that_is_read_is_stored_again_as_it_is(tmp_path: Path) -> None:
    back = read_run(stored(tmp_path / "run"))
    assert back.results is not None
    store_run(tmp_path / "again", back.results, back.evaluation, back.data)
    files = [(tmp_path / name / "evaluation.json").read_bytes() for name in ("run", "again")]
    assert files[0] == files[1]
