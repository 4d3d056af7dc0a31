"""A finished cell is read back only where everything that its numbers depend on is what it was."""

import dataclasses
import json
import math
import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import attack
from evaluation.runner import Evaluation
from evaluation.scores import Line, concat, score_table, with_setting
from experiments import read_experiment
from experiments.base import Choice
from experiments.cell_cache import Finished, StaleError, Stamp, read_cell, resolved, write_cell
from protocol.errors import InputError
from reports import provenance
from reports.run import Run
from tests.experiments.tables import read

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
    setting = {"data": "d", "epsilon": "inf", "rounds": 3, "level": 0.5}
    known = score_table(
        "direction",
        {"auc": [0.1 + 0.2, math.nan], "f1": [1, 0]},
        setting=setting,
        seed=0,
        round=1,
        victims=[2**62, 2**62 + 1],
        people=[3, 4],
        items=[5, 6],
        seconds=1e-9,
    )
    other = score_table("bound", {"bits": [1]}, setting={"data": "d", "rounds": 1, "noisy": True}, seed=1, victims=[0])
    profiles = pd.DataFrame({"victim": [7], "true": [0.5], "low": [math.nan], "attack": ["decaf"]})
    evaluation = Evaluation(
        scores=concat([known, other]),
        lines={"direction": Line(role="ours", family="recommendation", active=True)},
        roc={"direction": (torch.tensor([0.0, 1.0], dtype=torch.float64), 2)},
        missing={"imia": "no"},
        figures=[("c", "<svg>")],
        profiles=with_setting(profiles, data="d", round=2),
    )
    return Finished(evaluation, {"train": 1.5, "attack": 2.5})


def test_a_cell_is_read_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "cell.json"
    assert read_cell(path, STAMP) is None
    write_cell(path, STAMP, finished())
    back = read_cell(path, STAMP)
    assert back is not None
    assert back.read_back
    assert back.seconds == {"train": 1.5, "attack": 2.5}
    written = finished().evaluation
    pd.testing.assert_frame_equal(back.evaluation.scores, written.scores)
    pd.testing.assert_frame_equal(back.evaluation.profiles, written.profiles)
    kept = [back.evaluation.scores[f"setting.{key}"].tolist() for key in ("rounds", "level", "epsilon", "noisy")]
    assert repr(kept) == repr([[3] * 4 + [1], [0.5] * 4 + [None], ["inf"] * 4 + [None], [None] * 4 + [True]])
    assert back.evaluation.lines == written.lines
    assert repr(back.evaluation.roc) == repr(written.roc)
    assert (back.evaluation.missing, back.evaluation.figures) == (written.missing, written.figures)
    empty = Finished(Evaluation(), {"train": 0.0, "attack": 0.0})
    write_cell(path, STAMP, empty)
    again = read_cell(path, STAMP)
    assert again is not None
    pd.testing.assert_frame_equal(again.evaluation.scores, empty.evaluation.scores)


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


@pytest.mark.parametrize("content", ["", "null", "[]", "{}", '{"format": 3}', '{"rows": []}', "[" * 100_000])
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

    def reproduce(text: str) -> tuple[list[str], dict[tuple[str, int], float], str]:
        table.write_text(text)
        assert attack.main(["reproduce", str(table), "--out", str(out), "--jobs", "1"]) == 0
        means = {(r.attack, r.n): r.mean for r in read(out)}
        return Run.read(out / "results.json").read_back, means, capsys.readouterr().err

    read_back, means, _ = reproduce(filled("chance: {}", 6))
    assert (read_back, set(means)) == ([], {("chance", 6)})
    _, second, said = reproduce(filled("row-norm: {}, direction: {}", 9))
    assert second.keys() == {("row-norm", 9), ("direction", 9)}
    assert "run again, because its table changed since" in said
    read_back, third, said = reproduce(filled("row-norm: {}, direction: {}", 9))
    (cell,) = (out / "cells").iterdir()
    assert (read_back, third) == ([cell.name], second)
    assert f"{cell.name}: read back" in said
    (cell / "cell.json").write_text((cell / "cell.json").read_text().replace("direction", "directiom"))
    read_back, fourth, said = reproduce(filled("row-norm: {}, direction: {}", 9))
    assert (read_back, fourth) == ([], second)
    assert "is damaged" in said


OUTSIDE = """
from attacks.interactions import Chance

class Mine(Chance):
    \"\"\"Guesses.\"\"\"
    name = "mine"
"""


def test_an_attack_from_elsewhere_runs_by_its_class_path_and_its_source_is_in_the_stamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_outside_attack.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(tmp_path)
    cell = cell_of(filled("my_outside_attack.Mine: {}"), tmp_path)
    evaluation, _ = cell.evaluate(tmp_path)
    assert set(evaluation.scores["attack"]) == {"mine"}
    before = Stamp.of(cell, {})
    (tmp_path / "my_outside_attack.py").write_text(OUTSIDE + "# changed\n")
    assert before.changed(dataclasses.asdict(Stamp.of(cell, {}))) == ["code"]


@pytest.mark.parametrize("name", ["directoin", "pac", "my_package.NoAttack", "recommendation/nothing"])
def test_an_attack_that_is_not_there_is_one_message(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=name.rpartition("/")[2].rpartition(".")[0] or name):
        cell_of(filled(f"{name}: {{}}"), tmp_path)
