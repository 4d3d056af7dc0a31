"""A finished cell is read back only where everything that its numbers depend on is what it was."""

import dataclasses
import math
import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from fedleak.core import provenance
from fedleak.core.errors import InputError
from fedleak.core.estimates import ROC_GRID, Reconstruction
from fedleak.evaluation.captioned_figure import CaptionedFigure
from fedleak.evaluation.reasons import Reason
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import AttackInfo, concat, from_records, score_table, with_setting
from fedleak.evaluation.stored_run import read_results
from fedleak.tables.cell import Stamp
from fedleak.tables.cell_cache import Finished, StaleError, read_cell, write_cell
from tests.tables.tables import RECOMMENDER, cells_of, read, reproduce

STAMP = Stamp("table", "data", "code", "packages")


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
        lines={"direction": AttackInfo(role="ours", family="recommendation", active=True)},
        roc={"direction": (ROC_GRID.double().numpy(), 2)},
        missing={"imia": Reason("misfit", says="no")},
        pictures={"dlg": Reconstruction(torch.tensor([0, 1.0]).reshape(1, 1, 1, 2), torch.ones(1, 1, 1, 2) / 5)},
        figures=[CaptionedFigure("c", files={"svg": b"<svg>", "pdf": b"%PDF"}, name="map")],
        profiles=with_setting(profiles, data="d", round=2),
        details={"check": from_records([{"check": "scale", "n": 3, "p": 0.5, "ok": True}, {"check": "law", "n": 4}])},
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
    pd.testing.assert_frame_equal(back.evaluation.details["check"], written.details["check"])
    kept = [back.evaluation.scores[f"setting.{key}"].tolist() for key in ("rounds", "level", "epsilon", "noisy")]
    assert repr(kept) == repr([[3] * 4 + [1], [0.5] * 4 + [None], ["inf"] * 4 + [None], [None] * 4 + [True]])
    assert back.evaluation.lines == written.lines
    assert repr(back.evaluation.roc) == repr(written.roc)
    assert (back.evaluation.missing, back.evaluation.figures) == (written.missing, written.figures)
    torch.testing.assert_close(vars(back.evaluation.pictures["dlg"]), vars(written.pictures["dlg"].as_arrays()))
    empty = Finished(Evaluation(), {"train": 0.0, "attack": 0.0})
    write_cell(path, STAMP, empty)
    again = read_cell(path, STAMP)
    assert again is not None
    pd.testing.assert_frame_equal(again.evaluation.scores, empty.evaluation.scores)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Stamp)])
def test_another_stamp_is_another_cell(tmp_path: Path, field: str) -> None:
    write_cell(tmp_path / "cell.json", STAMP, finished())
    with pytest.raises(StaleError, match=field):
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
    with pytest.raises(StaleError, match="damaged"):
        read_cell(tmp_path / "cell.json", STAMP)


def stamp_of(text: str, folder: Path, fingerprint: dict[str, str] | None = None, **choice: Any) -> Stamp:
    (cell,) = cells_of(folder, text, **choice)
    return cell.stamp(fingerprint or {})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{direction: {}}", "{direction: {}, row-norm: {}}"),
        ("{direction: {}}", "{direction: {victims: 3}}"),
        ("data.clients_per_round: 10", "data.clients_per_round: 12"),
        (
            "data.clients_per_round: 10",
            "data.clients_per_round: 10, model.defenses: [{class_path: RowNoise, init_args: {scale: 1}}]",
        ),
        ("attacks:", "setting: {epsilon: inf}\nattacks:"),
        ("attacks:", "rounds: {separate: true}\nattacks:"),
        ("attacks:", "record: {dtype: float16}\nattacks:"),
    ],
)
def test_whatever_changes_in_a_table_changes_the_stamp(tmp_path: Path, old: str, new: str) -> None:
    assert stamp_of(RECOMMENDER, tmp_path) != stamp_of(RECOMMENDER.replace(old, new), tmp_path)


def test_a_stamp_holds_what_is_asked_and_read_but_not_where_it_lies(tmp_path: Path) -> None:
    def changed(fingerprint: str = "a", **choice: Any) -> list[str]:
        return plain.changed(dataclasses.asdict(stamp_of(RECOMMENDER, tmp_path, {"sha256": fingerprint}, **choice)))

    plain = stamp_of(RECOMMENDER, tmp_path, {"sha256": "a"})
    assert changed(root="elsewhere", progress=False) == []
    assert changed(victims=3) == changed(overrides={"model.local.epochs": 3}) == ["table"]
    assert changed("b") == ["data"]


def test_the_code_is_hashed_as_it_lies_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path)
    source = tmp_path / "attacks/a.py"
    source.parent.mkdir()
    (tmp_path / "attacks/__init__.py").touch()
    found = []
    for text in ("x = 1\n", "x = 2\n", "x = 1\n"):
        source.write_text(text)
        provenance.source_hash.cache_clear()
        found.append(provenance.source_hash())
    provenance.source_hash.cache_clear()
    assert found[0] == found[2] != found[1]


@pytest.mark.integration
def test_a_changed_table_is_run_again_and_the_results_say_what_was_read_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"

    def run(attacks: str, clients: int) -> tuple[list[str], dict[tuple[str, int], float], str]:
        text = RECOMMENDER.replace("{direction: {}}", attacks).replace("per_round: 10", f"per_round: {clients}")
        assert reproduce(tmp_path, text) == 0
        means = {(r.attack, r.n): r.mean for r in read(out)}
        return read_results(out).read_back, means, capsys.readouterr().err

    read_back, means, _ = run("{popularity: {}}", 6)
    assert (read_back, set(means)) == ([], {("popularity", 6)})
    _, second, said = run("{row-norm: {}, direction: {}}", 9)
    assert second.keys() == {("row-norm", 9), ("direction", 9)}
    assert "run again, because its table changed since" in said
    read_back, third, said = run("{row-norm: {}, direction: {}}", 9)
    (cell,) = (out / "cells").iterdir()
    assert (read_back, third) == ([cell.stem], second)
    assert f"{cell.stem}: read back" in said
    cell.write_text(cell.read_text().replace("direction", "directiom"))
    read_back, fourth, said = run("{row-norm: {}, direction: {}}", 9)
    assert (read_back, fourth) == ([], second)
    assert "is damaged" in said


OUTSIDE = """
from fedleak.attacks.interactions import Chance

class Mine(Chance):
    \"\"\"Guesses.\"\"\"
    name = "mine"
"""


@pytest.mark.integration
def test_an_attack_from_elsewhere_runs_by_its_class_path_and_its_source_is_in_the_stamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_outside_attack.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(tmp_path)
    text = RECOMMENDER.replace("{direction: {}}", "{my_outside_attack.Mine: {}}")
    assert reproduce(tmp_path, text) == 0
    assert {row.attack for row in read(tmp_path / "out")} == {"mine"}
    (cell,) = cells_of(tmp_path, text)
    before = cell.stamp({})
    (tmp_path / "my_outside_attack.py").write_text(OUTSIDE + "# changed\n")
    assert before.changed(dataclasses.asdict(cell.stamp({}))) == ["code"]


@pytest.mark.parametrize("neighbour", ["shares.py", "lazy.py", "../other_my_package_init/__init__.py"])
def test_neighbour_of_an_attack_from_elsewhere_is_in_the_stamp(
    neighbour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = "my_package_" + Path(neighbour).stem.strip("_")
    sources = {
        "__init__.py": "",
        "guess.py": f"from . import shares\n{OUTSIDE}\n    def more(self):\n        import {package}.lazy\n",
        "shares.py": f"import other_{package}, torch\n",
        "lazy.py": "",
        f"../other_{package}/__init__.py": "",
        "unrelated.py": "",
    }
    for name, source in sources.items():
        path = tmp_path / package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    (cell,) = cells_of(tmp_path, RECOMMENDER.replace("{direction: {}}", f"{{{package}.guess.Mine: {{}}}}"))
    before = dataclasses.asdict(cell.stamp({}))
    (tmp_path / package / "unrelated.py").write_text("# changed\n")
    assert cell.stamp({}).changed(before) == []
    (tmp_path / package / neighbour).write_text("# changed\n")
    assert cell.stamp({}).changed(before) == ["code"]


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("my_step", "attacks:", "after: [my_step.Mine]\nattacks:"),
        ("my_step_with_options", "attacks:", "after: [{my_step_with_options.Mine: {share: 0.5}}]\nattacks:"),
        ("my_defence", "set: {", "set: {model.defenses: [{class_path: my_defence.Nothing}], "),
    ],
)
def test_step_or_defence_from_elsewhere_is_in_the_stamp(
    name: str, old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "from fedleak.defenses.base import Defense\nfrom fedleak.evaluation.steps import RecordingStep\n"
        "class Nothing(Defense): pass\n"
        "class Mine(RecordingStep):\n    name = 'mine'\n    def __init__(self, share: float = 0.1): pass\n"
        "    def rows(self, run): return []\n"
    )
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    (cell,) = cells_of(tmp_path, RECOMMENDER.replace(old, new))
    before = dataclasses.asdict(cell.stamp({}))
    (tmp_path / f"{name}.py").write_text(source + "# changed\n")
    assert cell.stamp({}).changed(before) == ["code"]


@pytest.mark.parametrize("name", ["directoin", "my_package.NoAttack", "recommendation/nothing"])
def test_an_attack_that_is_not_there_is_one_message(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=name.rpartition("/")[2].rpartition(".")[0] or name):
        cells_of(tmp_path, RECOMMENDER.replace("direction", name))
