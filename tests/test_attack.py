"""The commands: what they leave, and what they say when they cannot."""

import csv
import hashlib
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save

from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.attacks.recommendation.item_deltas import Direction
from fedleak.commands import program
from fedleak.commands.shared.parser import parsed
from fedleak.core.attack import Attack
from fedleak.core.places import table_files
from fedleak.core.seeding import KEY_VARIABLE
from fedleak.core.threat_model import ThreatModel
from fedleak.evaluation.reasons import Reason, nothing_scored
from fedleak.evaluation.registry import REGISTRY, find
from fedleak.evaluation.scores import records
from fedleak.evaluation.stored_run import read_results
from fedleak.recordings.control import ControlRecording
from fedleak.recordings.recording import Recording
from fedleak.reports.papers import paper_tables, with_papers
from fedleak.tables.cell import Cell
from fedleak.tables.table import Choice, read_table
from tests.frames import KINDS, results
from tests.frames import cell as row
from tests.places import CONFIGS
from tests.regression.cases import names
from tests.regression.frozen import path_of
from tests.tables.tables import RANKING, RECOMMENDER, reproduce
from tests.toys import train

NUMBERS = {
    **{"deanon_equal_halves": 2, "deanon_figure10": 1, "deanon_figure7": 3, "deanon_table2": 4},
    **{"deanon_table3": 2, "deanon_table4": 2, "decaf_figure10": 2, "decaf_figure13": 6, "decaf_figure5": 2},
    **{"decaf_figure9": 2, "decaf_full_batch": 5, "decaf_relatives": 5, "decaf_sgd": 5, "decaf_tables3to7": 5},
    **{"gradient_matching_cifar10": 2, "labels_ilrg": 4, "linear_inversion": 12, "raifle_algorithm2": 18},
    **{"prior_rankings": 6, "raifle_bounds": 11, "raifle_bounds_fncf": 5, "raifle_checks": 4, "raifle_codebook": 60},
    **{"raifle_detectability": 4, "raifle_guardrail": 5, "raifle_noise_scale": 4, "raifle_table11": 78},
    **{"raifle_table12": 1, "raifle_table13": 16, "raifle_table14": 322, "raifle_table14_passive": 87},
    **{"raifle_table15": 180, "raifle_table5": 2, "raifle_table6": 8, "raifle_table7": 21, "raifle_table8": 37},
    **{"raifle_table8_cifar10": 19, "raifle_table9": 16, "raifle_table9_rankings": 25, "source_cifar10": 2},
}
"""By table, in how many of its settings the papers have a number; 0 for a table that is not here."""
MEASURED = {str(name) for table in paper_tables() for name in table.values["attack"]}
"""Attacks and models that the papers measure."""


class NeedsTheImpossible(Direction):
    name = "mind-reader"
    threat_model = ThreatModel(sees="all", knows="all", needs=("mind",))


class OtherEstimate(InteractionEstimate):
    """A kind that its attack does not return."""


class WithoutScorer(Direction):
    name = "without-scorer"
    estimates = OtherEstimate


@pytest.fixture(scope="module")
def deltas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    train(folder, rounds=2, users=24, items=120)
    return folder / "deltas"


@pytest.mark.integration
def test_audit_leaves_results_victims_and_a_report(deltas: Path, tmp_path: Path) -> None:
    assert program.main(["audit", str(deltas), "--out", str(tmp_path)]) == 0
    content = json.loads((tmp_path / "results.json").read_text())
    assert content["format"] == 1
    assert {"experiment", "command", "seed", "commit", "versions", "data", "hardware", "seconds"} < content.keys()
    cell = next(r for r in content["results"] if (r["attack"], r["metric"]) == ("direction", "auc"))
    fields = {"attack", "setting", "metric", "mean", "std", "ci95", "n", "seconds_per_victim", "paper"}
    fields |= {"seeds", "family", "baseline", "threat_model", "role", "comparison", "question", "tells", "unbounded"}
    fields |= {"name", "variant", "with_prior", "luck"}
    assert cell.keys() == fields
    assert (cell["seeds"], cell["family"], cell["baseline"]) == (1, "recommendation", False)
    assert cell["threat_model"].keys() == {"sees", "knows", "active"}
    against = {(d["attack"], d["against"]): d for d in content["differences"] if d["metric"] == "auc"}
    assert against["direction", "popularity"]["n"] == 24
    assert ("direction", "raifle") in against or ("direction", "imia") in against
    assert cell["n"] == 24
    assert cell["ci95"][0] <= cell["mean"] <= cell["ci95"][1]
    with (tmp_path / "scores.csv").open() as file:
        rows = [r for r in csv.DictReader(file) if (r["attack"], r["metric"]) == ("direction", "auc")]
    assert len(rows) == 48
    assert len({row["person"] for row in rows}) == 24
    assert all(row["person"] == row["victim"] for row in rows)
    page = (tmp_path / "report.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    )
    assert page.count("<script") == page.count("<script>") == 1  # its own, which loads nothing
    assert "nothing about real people" in page
    results = read_results(tmp_path).results
    assert results["n"].max() == 24
    assert {"chance", "direction"} <= set(results["attack"])  # no family: attacks of the same name did not fit


@pytest.mark.integration
@pytest.mark.usefixtures("without_figures")
def test_run_takes_its_attack_from_a_config(deltas: Path, tmp_path: Path) -> None:
    config = CONFIGS / "attack/direction_fncf_movielens.yaml"
    assert program.main(["run", "--config", str(config), str(deltas), "--out", str(tmp_path)]) == 0
    assert set(read_results(tmp_path).results["attack"]) == {"direction"}


@pytest.mark.integration
@pytest.mark.usefixtures("without_figures")
def test_reproduce_goes_on_where_it_stopped(tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        assert reproduce(tmp_path, RECOMMENDER, "--victims", "10") == 0
        found.append(read_results(tmp_path / "out").results)
    pd.testing.assert_frame_equal(found[0], found[1])
    assert program.main(["report", str(tmp_path / "out"), "--out", str(tmp_path / "page")]) == 0
    assert (tmp_path / "page/report.html").exists()


@pytest.mark.integration
@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize("engine", ["processes", "submitit"])
def test_cells_on_another_engine_give_the_same(tmp_path: Path, engine: str) -> None:
    options = {"alone": ["--jobs", "1"], engine: ["--jobs", "2", "--engine", engine]}
    if engine == "submitit":
        options[engine] += ["--engine.cluster", "local"]
    scores = {}
    for name, given in options.items():
        (tmp_path / name).mkdir()
        assert reproduce(tmp_path / name, RANKING, *given) == 0
        scores[name] = pd.read_csv(tmp_path / name / "out" / "scores.csv").drop(columns="seconds")
    pd.testing.assert_frame_equal(scores["alone"], scores[engine], check_exact=True)


@pytest.mark.integration
@pytest.mark.usefixtures("without_figures")
def test_what_an_attack_refuses_is_one_message(deltas: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind = "fedleak.attacks.ranking.codebook.CodebookAttack"
    assert program.main(["run", "--attack", kind, "--attack.victims_at_once", "0", str(deltas)]) == 2
    assert "victims_at_once: a whole number above 0" in capsys.readouterr().err


@pytest.mark.integration
@pytest.mark.usefixtures("without_figures")
def test_results_name_clients_only_on_request(
    deltas: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {str(name) for name in Recording(deltas).pseudonyms()}
    people = {str(person) for person in range(24)}

    def clients(out: str, *options: str) -> set[str]:
        arguments = ["--attack", "row-norm", str(deltas), "--out", str(tmp_path / out)]
        assert program.main(["run", *arguments, *options]) == 0
        with (tmp_path / out / "scores.csv").open() as file:
            return {row[name] for row in csv.DictReader(file) for name in ("victim", "person")}

    assert clients("kept", "--persons") == names | people
    assert clients("one") == clients("two")
    monkeypatch.delenv(KEY_VARIABLE)
    drawn = [clients("drawn"), clients("other")]
    assert not drawn[0] & drawn[1]
    assert not (drawn[0] | drawn[1]) & (names | people)
    left = b"".join(path.read_bytes() for path in (tmp_path / "drawn").rglob("*") if path.is_file()).decode()
    left += capsys.readouterr().out
    assert not [name for name in names if name in left]


@pytest.mark.integration
@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize("control", ["others", "noise"])
def test_a_control_is_at_chance_in_a_folder_of_its_own(deltas: Path, tmp_path: Path, control: str) -> None:
    shutil.copytree(deltas, tmp_path / "deltas")
    assert program.main(["audit", str(tmp_path / "deltas"), "--control", control]) == 0
    assert not (tmp_path / "results.json").exists()
    found = read_results(tmp_path / f"control-{control}").results
    assert {*found["setting.control"]} == {control}
    own = found[(found["attack"] == "direction") & found["metric"].isin(["auc", "bits"])].set_index("metric")
    assert own["low"]["auc"] < 0.5 + 0.05
    assert own["low"]["bits"] <= 0


@pytest.mark.integration
def test_the_updates_of_a_control_are_of_others_or_noise_where_clients_have_rows(deltas: Path) -> None:
    for real, others, noise in zip(
        Recording(deltas).views(victims_per_view=5),
        ControlRecording(deltas, "others").views(victims_per_view=5),
        ControlRecording(deltas, "noise").views(victims_per_view=5),
        strict=True,
    ):
        assert torch.equal(real.pseudonyms, others.pseudonyms)
        for name, own in real.deltas.items():
            rows = real.served_mask[..., None] if name in real.row_parameters else torch.ones(())
            expected = own.roll(1, 0) * rows
            assert torch.equal(others.deltas[name], expected if real.victims > 1 else noise.deltas[name])
            assert not bool((noise.deltas[name] * (rows == 0)).any())
            assert not torch.equal(noise.deltas[name], own)


@pytest.mark.integration
@pytest.mark.usefixtures("without_figures")
def test_run_leaves_the_audits_report_alone(deltas: Path, tmp_path: Path) -> None:
    shutil.copytree(deltas, tmp_path / "deltas")
    assert program.main(["audit", str(tmp_path / "deltas"), "--victims", "6"]) == 0
    names = ("results.json", "scores.csv", "report.html")
    before = {name: (tmp_path / name).read_bytes() for name in names}
    kind = "row-norm"
    assert program.main(["run", "--attack", kind, str(tmp_path / "deltas"), "--victims", "3"]) == 0
    assert {name: (tmp_path / name).read_bytes() for name in names} == before
    assert set(read_results(tmp_path / "run-row-norm").results["attack"]) == {"row-norm"}


@pytest.mark.integration
@pytest.mark.usefixtures("without_figures")
def test_an_attack_that_cannot_run_leaves_nothing(
    deltas: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind, lacks in (
        ("decaf", "the question does not apply: the clients have no records but"),
        ("membership/pir-fingerprint", "without member in truth/"),
        ("tests.test_attack.WithoutScorer", "expected OtherEstimate, got InteractionEstimate"),
        ("tests.test_attack.NeedsTheImpossible", "found mind. Fix `needs`"),
    ):
        out = tmp_path / kind.rpartition(".")[2]
        assert program.main(["run", "--attack", kind, str(deltas), "--out", str(out)]) == 2
        said = capsys.readouterr().err.splitlines()
        assert lacks in said[-1]
        assert not out.exists()


@pytest.mark.integration
@pytest.mark.usefixtures("without_figures")
def test_an_audit_without_any_score_says_what_to_do_and_describes_the_updates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path, rounds=1, users=24, items=120)
    for path in (tmp_path / "deltas/truth").iterdir():
        held = load_file(path)
        whole = save({name: value for name, value in held.items() if name != "labels"})
        journal = tmp_path / "deltas/journal.jsonl"
        lines = [json.loads(line) for line in journal.read_text().splitlines()]
        path.write_bytes(whole)
        for line in lines:
            if line.get("file") == f"truth/{path.name}":
                line |= {"bytes": len(whole), "sha256": hashlib.sha256(whole).hexdigest()}
        journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert program.main(["audit", str(tmp_path / "deltas")]) == 0
    said = capsys.readouterr().out
    assert "No attack could be scored on this recording." in said
    assert "add labels to the truth of each client (docs/reference/recording-format.md)" in said
    content = json.loads((tmp_path / "results.json").read_text())
    assert content["results"] == []
    assert {row["tensor"] for row in content["details"]["updates"]} >= {"item_embedding.weight", "mlp.0.weight"}
    assert "What the updates look like" in (tmp_path / "report.html").read_text()
    assert program.main(["audit", str(tmp_path / "deltas"), "--gate", "auc=0.6"]) == 4
    assert "gate could not be checked: no attack measured auc" in capsys.readouterr().out


@pytest.mark.integration
@pytest.mark.usefixtures("without_figures")
def test_a_recording_of_one_part_is_reported_above_it(
    deltas: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(deltas, tmp_path / "run/deltas")
    monkeypatch.chdir(tmp_path / "run/deltas")
    assert program.main(["audit", ".", "--victims", "5"]) == 0
    assert (tmp_path / "run/report.html").exists()
    assert not (tmp_path / "run/deltas/report.html").exists()


@pytest.mark.integration
@pytest.mark.usefixtures("without_figures")
def test_what_cannot_be_written_is_one_line_and_the_results_are_kept(
    deltas: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    command = ["audit", str(deltas), "--victims", "5", "--out"]
    assert program.main([*command, str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("fedleak: expected a folder for the results")

    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("fedleak.reports.html.write_whole", full)
    assert program.main([*command, str(tmp_path / "out")]) == 2
    assert "No space left on device" in capsys.readouterr().err.splitlines()[-1]
    assert len(read_results(tmp_path / "out").results)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["audit", "DELTAS"], "a recording"),
        (["audit", "DELTAS", "--victims", "0"], "--victims of at least 1"),
        (["audit", "DELTAS", "--victims", "-3"], "--victims of at least 1"),
        (["audit", "DELTAS", "--seed", str(2**70)], "--seed from 0 to"),
        (["audit", "DELTAS", "--seed", "-1"], "--seed from 0 to"),
        (["audit", "DELTAS", "--control", "noise", "--gate", "auc=0.6"], "--control without --gate"),
        (["audit", "DELTAS", "--control", "none"], "invalid choice"),
        (["reproduce", "TABLE", "--seeds", "0"], "--seeds of at least 1"),
        (["reproduce", "TABLE", "--seeds", "-1"], "--seeds of at least 1"),
        (["reproduce", "TABLE", "--victims", "0"], "--victims of at least 1"),
        (["reproduce", "TABLE", "--jobs", "0"], "--jobs of at least 1"),
        *((["reproduce", "TABLE", "--part", part], "--part I/N") for part in ("2/2", "1", "0/0")),
        (["reproduce", "TABLE", "--part", "5/9"], "a part of 1 trainings"),
        (["reproduce", "nowhere.yaml"], "the file of a table, or a name in configs/paper and configs/table"),
        (["reproduce", "LATIN"], "a table as in configs/table"),
        (["run", "--config", "LATIN", "DELTAS"], "UTF-8"),
    ],
)
def test_impossible_numbers_and_files_are_one_line(
    words: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "table.yaml").write_text(RECOMMENDER)
    (tmp_path / "latin.yaml").write_bytes(RECOMMENDER.encode() + b"# caf\xe9\n")
    places = {"DELTAS": tmp_path, "TABLE": tmp_path / "table.yaml", "LATIN": tmp_path / "latin.yaml"}
    assert program.main([str(places.get(word, word)) for word in words]) == 2
    said = capsys.readouterr().err
    assert expected in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "found"),
    [
        (("--set", "data.usrs=3"), "usrs"),
        (("--set", "model.local.epochs"), "--set KEY=VALUE; found model.local.epochs"),
        (("--set", "model.local.epoch=3"), "epoch"),
        (("--also", "directoin"), "Did you mean direction?"),
        (("--data", "MNIST"), "found 'MNIST'"),
        (("--data", "my_package.MyData"), "my_package.MyData"),
    ],
)
def test_what_a_table_is_given_wrong_is_one_line(
    option: tuple[str, ...], found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce(tmp_path, RECOMMENDER, *option) == 2
    said = capsys.readouterr().err
    assert found in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.integration
@pytest.mark.usefixtures("without_figures")
def test_a_table_with_another_training_and_another_attack(tmp_path: Path) -> None:
    more = ("--set", "model.local.epochs=1", "--set", "data.clients_per_round=4", "--also", "row-norm")
    assert reproduce(tmp_path, RECOMMENDER, *more) == 0
    rows = records(read_results(tmp_path / "out").results)
    assert {(row["attack"], row["n"]) for row in rows} == {("direction", 4), ("row-norm", 4)}


@pytest.mark.integration
@pytest.mark.parametrize("name", [name for name in names("paper", "table") if path_of(name).is_file()])
def test_a_table_stands_next_to_the_papers_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the tables whose numbers are frozen: a new one needs no entry here."""
    monkeypatch.setattr(Cell, "check", lambda _: None)
    table = read_table(table_files()[name])
    cells = table.cells(Choice())
    assert len({cell.key for cell in cells}) == len(cells)
    settings = {str(cell.setting): dict(cell.setting) for cell in cells}
    asked: set[tuple[str, str | None]] = {
        (one, find(kind).family) for cell in cells for kind in cell.attacks for one in find(kind).names()
    }
    by_steps = any(cell.after for cell in cells)  # a step may measure what an attack found, in a line without a family
    asked |= {(one, None) for one in MEASURED if by_steps or one not in KINDS}
    rows = [
        {**row(one, metric, 0.5, setting=setting, family=family), "place": place}
        for place, setting in enumerate(settings.values())
        for one, family in sorted(asked, key=str)
        for metric in table.metrics
    ]
    found = with_papers(results(*rows))
    assert found.loc[found["source"].notna(), "place"].nunique() == NUMBERS.get(name, 0)


@pytest.mark.parametrize("path", sorted((CONFIGS / "attack").glob("*.yaml")), ids=lambda path: path.stem)
def test_attack_configs_parse(path: Path) -> None:
    _, options = parsed(["run", "--config", str(path), "nowhere"])
    assert isinstance(options.attack, Attack)


@pytest.mark.integration
@pytest.mark.usefixtures("without_figures")
def test_parts_of_a_table_are_joined_by_a_run_without(tmp_path: Path) -> None:
    defended = "{model.defenses: [{class_path: RowNoise, init_args: {scale: $}}]}"
    text = RECOMMENDER + f'axes: {{noise: {{0: {{}}, "1, 2": {defended}}}}}\n'
    cells = tmp_path / "out" / "cells"
    assert reproduce(tmp_path, text, "--part", "0/2") == 0
    assert len(list(cells.glob("*.json"))) == 2
    assert not (tmp_path / "out/results.json").exists()
    assert reproduce(tmp_path, text, "--part", "1/2") == 0
    done = {path: path.stat().st_mtime_ns for path in cells.glob("*.json")}
    assert len(done) == 3
    assert reproduce(tmp_path, text) == 0
    assert {path: path.stat().st_mtime_ns for path in done} == done
    assert set(read_results(tmp_path / "out").results["setting.noise"]) == {0, 1, 2}


LACKS_LEARNER = Reason("lacking", ("the clients' training algorithm",))
UNSCORED = Reason("unscored", ("labels",))
LACKS_ONE, LACKS_TWO = Reason("lacking", ("x",)), Reason("lacking", ("x", "y"))


@pytest.mark.parametrize(
    ("missing", "nearest"),
    [
        ({"direction": Reason("lacking", ("served",)), "decaf": LACKS_LEARNER}, "decaf"),
        ({"direction": Reason("inapplicable", says="x"), "decaf": LACKS_TWO}, "decaf"),
        ({"decaf": LACKS_LEARNER, "pac": UNSCORED}, "pac"),
        ({"a": LACKS_TWO, "b": LACKS_ONE, "c": LACKS_ONE}, "b, c"),
        ({"chance": UNSCORED, "imia": LACKS_TWO}, "imia"),
    ],
)
def test_what_is_nearest_to_a_score_is_named(missing: dict[str, Reason], nearest: str) -> None:
    assert f"the nearest is {nearest}: " in str(nothing_scored(missing, [kind() for kind in REGISTRY.values()]))
