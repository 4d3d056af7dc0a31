"""A cell trains, records, evaluates and keeps what it came to; by hand, the printed commands do the same."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

import attack
from experiments.cell import Cell
from experiments.running import run_cell
from experiments.table import Choice, read_table
from experiments.table_file import read_content
from fedleak_recorder.format import only_writer
from protocol.errors import InputError
from reports.run import Run
from tests.experiments.tables import RECOMMENDER, cells_of, check_by_hand, read, reproduce
from tests.places import CONFIGS
from tests.regression.cases import reductions, shrunk
from tests.regression.data import write_data

FAMILIES = (
    "raifle_table13",
    "raifle_table14",
    "raifle_table15_drawn",
    "decaf_figure6",
    "deanon_table4",
    "pac_theorem3",
)
"""A table of recommendation, of rankings, of images, of compositions, of devices and of private vectors."""


@pytest.mark.integration
@pytest.mark.parametrize("name", FAMILIES)
def test_the_printed_commands_give_the_same_numbers(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = shrunk(read_content(CONFIGS / "paper" / f"{name}.yaml"), reductions()[name]["set"])
    data = write_data(tmp_path / "data")
    check_by_hand(tmp_path, yaml.safe_dump(content, sort_keys=False), capsys, "--data.root", str(data))


@pytest.mark.integration
def test_another_attack_needs_no_other_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce(tmp_path, RECOMMENDER) == 0
    (mark,) = (tmp_path / "out" / "trainings").glob("*/training.json")
    made = mark.stat().st_mtime_ns
    capsys.readouterr()
    assert reproduce(tmp_path, RECOMMENDER.replace("{direction: {}}", "{direction: {}, row-norm: {}}")) == 0
    assert "run again, because its table changed since" in capsys.readouterr().err
    assert {row.attack for row in read(tmp_path / "out")} == {"direction", "row-norm"}
    assert mark.stat().st_mtime_ns == made


@pytest.mark.integration
def test_a_recording_that_was_lost_is_made_again(tmp_path: Path) -> None:
    assert reproduce(tmp_path, RECOMMENDER) == 0
    before = [row.mean for row in read(tmp_path / "out")]
    (mark,) = (tmp_path / "out" / "trainings").glob("*/training.json")
    mark.write_text("{")
    (cell,) = (tmp_path / "out" / "cells").glob("*.json")
    cell.unlink()
    assert reproduce(tmp_path, RECOMMENDER) == 0
    assert [row.mean for row in read(tmp_path / "out")] == before
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
            with pytest.raises(InputError, match="no other process writes"):
                run_cell(cell, stamp)
            waiting = pool.submit(taken)
            with pytest.raises(TimeoutError):
                waiting.result(0.2)
        assert waiting.result(60)
    assert len(run_cell(cell, stamp, wait=True).evaluation.scores)


@pytest.mark.integration
def test_several_devices_train_by_train_py(tmp_path: Path) -> None:
    assert reproduce(tmp_path, RECOMMENDER) == 0
    alone = {(row.attack, row.metric): row.mean for row in read(tmp_path / "out")}
    other = tmp_path / "two"
    other.mkdir()
    two = ("--set", "trainer.devices=2", "--set", "trainer.accelerator=cpu", "--set", "trainer.strategy=ddp")
    assert reproduce(other, RECOMMENDER, *two) == 0
    together = {(row.attack, row.metric): row.mean for row in read(other / "out")}
    assert together == pytest.approx(alone)
    assert len(list((other / "out" / "trainings").glob("*/deltas/journal*"))) == 2


@pytest.mark.integration
def test_results_say_what_was_read_back(tmp_path: Path) -> None:
    assert reproduce(tmp_path, RECOMMENDER) == 0
    assert Run.read(tmp_path / "out" / "results.json").read_back == []
    assert reproduce(tmp_path, RECOMMENDER) == 0
    assert Run.read(tmp_path / "out" / "results.json").read_back == ["synthetic-seed0"]


@pytest.mark.parametrize("path", sorted((CONFIGS / "paper").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_table_s_cells_can_be_trained_and_attacked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the cells, those that hold every label of every axis: a table has hundreds, and parsing takes its time."""
    check, seen = Cell.check, set[tuple[str, int, str]]()
    monkeypatch.setattr(Cell, "check", lambda _: None)
    for scale in ("small", "paper"):
        for cell in read_table(path).cells(Choice(scale=scale)):
            labels = {(scale, place, label) for place, label in enumerate(cell.labels)}
            if not labels <= seen:
                check(cell)
                seen |= labels
    assert {scale for scale, _, _ in seen} == {"small", "paper"}


@pytest.mark.integration
def test_a_paper_s_table_runs_on_another_data_set_without_a_copy(tmp_path: Path) -> None:
    ratings = write_data(tmp_path / "data") / "ml-100k" / "u.data"
    other = tmp_path / "data" / "ml-latest-small"
    other.mkdir()
    rows = [line.replace("\t", ",") for line in ratings.read_text(encoding="utf-8").splitlines()]
    (other / "ratings.csv").write_text("\n".join(["userId,movieId,rating,timestamp", *rows]) + "\n", encoding="utf-8")
    table = str(CONFIGS / "paper" / "raifle_table5.yaml")
    more = ("--data.root", str(tmp_path / "data"), "--set", "model.local.epochs=2", "--victims", "6", "--jobs", "1")
    found = []
    for name in ("ml-100k", "ml-latest-small"):
        out = tmp_path / name
        assert attack.main(["reproduce", table, "--data", name, "--out", str(out), *more]) == 0
        found.append({(row.attack, row.metric): (row.mean, row.n) for row in read(out)})
        assert {row.setting["data"] for row in read(out)} == {name}
    assert found[0] == found[1]
    assert ("raifle", "auc") in found[0]
