"""A finished cell is read back only where everything that its numbers depend on is what it was."""

import dataclasses
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch

import attack
from experiments import read_experiment
from experiments.base import Choice
from experiments.cell_cache import Finished, StaleError, Stamp, read_cell, resolved, write_cell
from reports import provenance
from reports.evaluation import Evaluation
from reports.results import Profile, Run, VictimRow

CONFIGS = Path(__file__).parents[2] / "configs"
STAMP = Stamp("table", "data", "code", "packages")
TABLE = """
kind: recommendation
experiment: t
metrics: [auc]
data: [synthetic]
cells: [{epsilon: inf}]
attacks: {ATTACKS}
small_clients: {synthetic: CLIENTS}
"""


def finished() -> Finished:
    row = VictimRow("direction", {"data": "d", "epsilon": "inf"}, 0, 1, 2**62, 5, 2, "auc", 0.1 + 0.2, 1e-9, person=3)
    unknown = dataclasses.replace(row, value=math.nan, person=None)
    profile = Profile("decaf", {"data": "d"}, 0, 1, 7, [[0.5, 0.25, math.nan, math.nan]])
    evaluation = Evaluation([row, unknown], {"direction": torch.tensor([0.0, 1.0])}, {"imia": "no"}, [("c", "<svg>")])
    evaluation.profiles.append(profile)
    return Finished(evaluation, {"train": 1.5, "attack": 2.5})


def test_a_cell_is_read_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "cell.json"
    assert read_cell(path, STAMP) is None
    write_cell(path, STAMP, finished())
    back = read_cell(path, STAMP)
    assert back is not None
    assert back.read_back
    assert back.seconds == {"train": 1.5, "attack": 2.5}
    assert back.evaluation.rows[0] == finished().evaluation.rows[0]
    assert math.isnan(back.evaluation.rows[1].value)
    assert back.evaluation.figures == [("c", "<svg>")]
    assert repr(back.evaluation.profiles) == repr(finished().evaluation.profiles)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Stamp)])
def test_another_stamp_is_another_cell(tmp_path: Path, field: str) -> None:
    write_cell(tmp_path / "cell.json", STAMP, finished())
    with pytest.raises(StaleError, match=f"its {field} changed since"):
        read_cell(tmp_path / "cell.json", dataclasses.replace(STAMP, **{field: "another"}))


def test_a_damaged_file_is_neither_believed_nor_a_traceback(tmp_path: Path) -> None:
    path = tmp_path / "cell.json"
    write_cell(path, STAMP, finished())
    whole, chance, intact = path.read_bytes(), random.Random(0), read_cell(path, STAMP)
    for _ in range(300):
        damaged = bytearray(whole)
        place = chance.randrange(len(damaged))
        if chance.random() < 0.3:
            damaged = damaged[:place]
        else:
            damaged[place] = chance.randrange(256)
        path.write_bytes(damaged)
        try:
            back = read_cell(path, STAMP)
        except StaleError:
            continue
        assert back is not None
        assert repr(back) == repr(intact)  # the byte was the same, or of the commit


@pytest.mark.parametrize("content", ["", "null", "[]", "{}", '{"format": 2}', '{"rows": []}', "[" * 100_000])
def test_a_stranger_s_file_is_run_again(tmp_path: Path, content: str) -> None:
    (tmp_path / "cell.json").write_text(content)
    with pytest.raises(StaleError, match="damaged, or another version's"):
        read_cell(tmp_path / "cell.json", STAMP)


def cell_of(text: str, tmp_path: Path, **choice: Any) -> Any:
    (tmp_path / "t.yaml").write_text(text)
    return next(iter(read_experiment(tmp_path / "t.yaml").cells(Choice(**choice))))


def filled(attacks: str = "direction: {}", clients: int = 10) -> str:
    return TABLE.replace("ATTACKS", attacks).replace("CLIENTS", str(clients))


@pytest.mark.parametrize(
    "changed",
    [
        filled("direction: {}, chance: {}"),
        filled(clients=12),
        filled().replace("[auc]", "[auc, f1]"),
        filled() + "limits: {direction: 3}\n",
        filled() + "clip: 0.1\n",
    ],
)
def test_whatever_changes_in_a_table_changes_the_stamp(tmp_path: Path, changed: str) -> None:
    assert Stamp.of(cell_of(filled(), tmp_path), {}) != Stamp.of(cell_of(changed, tmp_path), {})


def test_a_stamp_holds_what_is_asked_and_read_but_not_where_it_lies(tmp_path: Path) -> None:
    plain = Stamp.of(cell_of(filled(), tmp_path), {"sha256": "a"})
    assert plain == Stamp.of(cell_of(filled(), tmp_path, root="elsewhere", progress=False, seeds=3), {"sha256": "a"})
    assert plain.changed(dataclasses.asdict(Stamp.of(cell_of(filled(), tmp_path, victims=3), {"sha256": "a"}))) == [
        "table"
    ]
    assert plain.changed(dataclasses.asdict(Stamp.of(cell_of(filled(), tmp_path), {"sha256": "b"}))) == ["data"]


@pytest.mark.parametrize("path", sorted((CONFIGS / "paper").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_table_resolves_to_the_same_text_in_every_process(path: Path) -> None:
    cell = next(iter(read_experiment(path).cells(Choice())))
    text = json.dumps(resolved(cell))
    assert " at 0x" not in text
    assert "object" not in text


def test_the_code_is_hashed_as_it_lies_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "CHECKOUT", tmp_path)
    source = tmp_path / "attacks/a.py"
    source.parent.mkdir()
    found = []
    for text in ("x = 1\n", "x = 2\n", "x = 1\n"):
        source.write_text(text)
        provenance.source_hash.cache_clear()
        found.append(provenance.source_hash())
    provenance.source_hash.cache_clear()
    assert found[0] == found[2] != found[1]


def test_a_changed_table_is_run_again_and_the_results_say_what_was_read_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, out = tmp_path / "t.yaml", tmp_path / "out"

    def reproduce(text: str) -> tuple[Run, str]:
        table.write_text(text)
        assert attack.main(["reproduce", str(table), "--out", str(out), "--jobs", "1"]) == 0
        return Run.read(out / "results.json"), capsys.readouterr().err

    first, _ = reproduce(filled("chance: {}", 6))
    assert {(r.attack, r.n) for r in first.results} == {("chance", 6)}
    assert first.read_back == []
    second, said = reproduce(filled("row-norm: {}, direction: {}", 9))
    assert {(r.attack, r.n) for r in second.results} == {("row-norm", 9), ("direction", 9)}
    assert "run again, because its table changed since" in said
    third, said = reproduce(filled("row-norm: {}, direction: {}", 9))
    assert third.results == second.results
    (cell,) = (out / "cells").iterdir()
    assert third.read_back == [cell.name]
    assert f"{cell.name}: read back" in said
    (cell / "cell.json").write_text((cell / "cell.json").read_text().replace("direction", "directiom"))
    fourth, said = reproduce(filled("row-norm: {}, direction: {}", 9))
    assert [(r.attack, r.mean) for r in fourth.results] == [(r.attack, r.mean) for r in second.results]
    assert fourth.read_back == []
    assert "is damaged" in said
