"""A cell trains, records, evaluates and keeps what it came to."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

import pytest

from fedleak.commands import program
from fedleak.core.errors import InputError
from fedleak.core.places import table_files
from fedleak.evaluation.stored_run import read_results
from fedleak.tables.cell import Cell
from fedleak.tables.running import run_cell
from fedleak.tables.table import Choice, Scale, read_table
from fedleak_recorder.format import only_writer
from tests.regression.cases import table_command
from tests.regression.data import write_data
from tests.tables.tables import RECOMMENDER, cells_of, read, reproduce


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder in which a table was run."""
    folder = tmp_path_factory.mktemp("finished")
    assert reproduce(folder, RECOMMENDER) == 0
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """Copy of that folder."""
    return shutil.copytree(finished, tmp_path / "copy")


@pytest.mark.integration
def test_another_attack_needs_no_other_training(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (mark,) = (folder / "out" / "trainings").glob("*/training.json")
    made = mark.stat().st_mtime_ns
    capsys.readouterr()
    assert reproduce(folder, RECOMMENDER.replace("{direction: {}}", "{direction: {}, row-norm: {}}")) == 0
    assert "run again, because its table changed since" in capsys.readouterr().err
    assert {row.attack for row in read(folder / "out")} == {"direction", "row-norm"}
    assert mark.stat().st_mtime_ns == made


@pytest.mark.integration
def test_a_recording_that_was_lost_is_made_again(folder: Path) -> None:
    before = [row.mean for row in read(folder / "out")]
    (mark,) = (folder / "out" / "trainings").glob("*/training.json")
    mark.write_text("{")
    (cell,) = (folder / "out" / "cells").glob("*.json")
    cell.unlink()
    assert reproduce(folder, RECOMMENDER) == 0
    assert [row.mean for row in read(folder / "out")] == before
    assert json.loads(mark.read_text())["seconds"] > 0


@pytest.mark.integration
def test_rounds_apart_are_rows_of_their_own(tmp_path: Path) -> None:
    text = (
        RECOMMENDER.replace("trainer.max_steps: 1", "trainer.max_steps: 3")
        + "rounds: {which: [0, 2], separate: true}\n"
    )
    assert reproduce(tmp_path, text) == 0
    assert [(row.setting["round"], row.n) for row in read(tmp_path / "out")] == [(1, 10), (3, 10)]
    (cell,) = cells_of(tmp_path, text)
    assert "--rounds '[0, 2]'" in list(cell.commands())[1]


@pytest.mark.integration
def test_one_cell_waits_for_another_s_training_only_where_they_are_of_one_table(tmp_path: Path) -> None:
    (cell,) = cells_of(tmp_path, RECOMMENDER)
    stamp = cell.stamp(cell.fingerprint())

    def taken() -> bool:
        with only_writer(cell.folder, wait=True):
            return True

    with ThreadPoolExecutor(1) as pool:
        with only_writer(cell.folder):
            with pytest.raises(InputError, match="process"):
                run_cell(cell, stamp)
            waiting = pool.submit(taken)
            with pytest.raises(TimeoutError):
                waiting.result(0.2)
        assert waiting.result(60)
    assert len(run_cell(cell, stamp, wait=True).evaluation.scores)


@pytest.mark.integration
def test_several_devices_train_by_train_py(finished: Path, tmp_path: Path) -> None:
    alone = {(row.attack, row.metric): row.mean for row in read(finished / "out")}
    two = ("--set", "trainer.devices=2", "--set", "trainer.accelerator=cpu", "--set", "trainer.strategy=ddp")
    assert reproduce(tmp_path, RECOMMENDER, *two) == 0
    together = {(row.attack, row.metric): row.mean for row in read(tmp_path / "out")}
    assert together == pytest.approx(alone)
    assert len(list((tmp_path / "out" / "trainings").glob("*/deltas/journal*"))) == 2


@pytest.mark.integration
def test_results_say_what_was_read_back(folder: Path) -> None:
    assert read_results(folder / "out").read_back == []
    assert reproduce(folder, RECOMMENDER) == 0
    assert read_results(folder / "out").read_back == ["synthetic-seed0"]


@pytest.mark.parametrize("path", sorted(table_files().values()), ids=lambda path: path.stem)
def test_every_table_s_cells_can_be_trained_and_attacked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the cells, as few as hold every label of every axis: a table has hundreds, and parsing takes its time."""
    with monkeypatch.context() as patch:
        patch.setattr(Cell, "check", lambda _: None)
        cells = [(scale, cell) for scale in get_args(Scale) for cell in read_table(path).cells(Choice(scale=scale))]
    labels: list[set[tuple[object, object]]] = [{(scale, None), *enumerate(cell.labels)} for scale, cell in cells]
    missing = set.union(*labels)
    while missing:
        most = max(range(len(cells)), key=lambda place: len(labels[place] & missing))
        cells[most][1].check()
        missing -= labels[most]


@pytest.mark.integration
def test_a_paper_s_table_runs_on_another_data_set_without_a_copy(tmp_path: Path) -> None:
    ratings = write_data(tmp_path / "data") / "ml-100k" / "u.data"
    other = tmp_path / "data" / "ml-latest-small"
    other.mkdir()
    rows = [line.replace("\t", ",") for line in ratings.read_text(encoding="utf-8").splitlines()]
    (other / "ratings.csv").write_text("\n".join(["userId,movieId,rating,timestamp", *rows]) + "\n", encoding="utf-8")
    found = []
    for name in ("ml-100k", "ml-latest-small"):
        (tmp_path / name).mkdir()
        command = table_command("raifle_table5", data=tmp_path / "data", folder=tmp_path / name)
        assert program.main([*command, "--data", name]) == 0
        results = read(tmp_path / name / "out")
        found.append({(row.attack, row.metric): (row.mean, row.n) for row in results})
        assert {row.setting["data"] for row in results} == {name}
    assert found[0] == found[1]
    assert ("raifle", "auc") in found[0]
