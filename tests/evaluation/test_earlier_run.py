"""A run that the version before stored, in results.json and evaluation.json of format 2, is read by every command.

Its files are those of ``fedleak audit deltas --only row-norm --only popularity --gate auc=0.6`` at commit e75b3290, on
a recording of six clients of one round.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedleak.commands import program
from fedleak.core.errors import InputError
from fedleak.core.provenance import hashed
from fedleak.core.roc_grid import POINTS
from fedleak.evaluation.labels import Label
from fedleak.evaluation.reasons import Reason
from fedleak.evaluation.stored_run import read_reference, read_results, read_run
from tests.toys import train

EARLIER = Path(__file__).parent / "earlier_run"


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EARLIER, tmp_path / "earlier"))


def test_its_results_are_those_of_results_json_and_its_scores_those_of_the_evaluation(earlier: Path) -> None:
    content = json.loads((earlier / "results.json").read_text())
    assert json.loads((earlier / "evaluation.json").read_text())["format"] == 2
    run = read_run(earlier)
    assert run.results is not None
    plain = run.results.plain()
    assert all(plain[name] == value for name, value in content.items() if name != "results")
    # A later version may say more of a row.
    assert [{**row, **earlier_row} for row, earlier_row in zip(plain["results"], content["results"], strict=True)] == (
        plain["results"]
    )
    assert run.data == content["data"]
    rows = run.evaluation.scores.query("attack == 'row-norm' and metric == 'auc'")
    mean = next(row["mean"] for row in content["results"] if (row["attack"], row["metric"]) == ("row-norm", "auc"))
    assert len(rows) == 6
    assert rows["value"].mean() == pytest.approx(mean)


def test_report_draws_its_page_and_stores_it_as_runs_are_stored_now(earlier: Path, tmp_path: Path) -> None:
    out = tmp_path / "page"
    assert program.main(["report", str(earlier), "--out", str(out)]) == 0
    assert "row-norm" in (out / "report.html").read_text(encoding="utf-8")
    assert json.loads((out / "evaluation.json").read_text())["format"] == 3
    before, now = read_results(earlier), read_results(out)
    assert now.results.equals(before.results)
    assert now.gate == before.gate


def rewritten(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes the evaluation of a run, with a right checksum."""
    content = json.loads((folder / "evaluation.json").read_text())
    del content["sha256"], content["format"]
    change(content)
    text = json.dumps({"format": 2, "sha256": hashed(content), **content})
    (folder / "evaluation.json").write_text(text)


def test_reasons_were_stored_as_sentences(earlier: Path) -> None:
    rewritten(earlier, lambda content: content.update(missing={"b": "it lacks something; add it"}))
    evaluation = read_run(earlier).evaluation
    assert evaluation.missing == {"b": Reason("unknown", says="it lacks something; add it")}
    assert str(evaluation.missing["b"]) == "it lacks something; add it"
    assert evaluation.unrelated == {}


def test_labels_were_stored_as_they_are_printed(earlier: Path) -> None:
    """An attack's label may end in another one's."""

    def change(content: dict[str, Any]) -> None:
        line, curve = content["lines"]["row-norm"], [[0.0] * POINTS, 1]
        content["lines"] = {**content["lines"], "a": line, "a (x)": line}
        content["roc"] = {"a (x) (d, epsilon 1)": curve, "b (d)": curve}
        content["details"] = {"a": {"n": ["int64", [1]]}, "updates (d)": {"n": ["int64", [1]]}}

    rewritten(earlier, change)
    evaluation = read_run(earlier).evaluation
    assert evaluation.label("a (x) (d, epsilon 1)") == Label("a (x)", "d, epsilon 1")
    assert evaluation.label("updates (d)") == Label("updates", "d")
    assert evaluation.label("a") == Label("a")
    assert evaluation.label("b (d)") == Label("b (d)")


def test_reasons_for_an_unknown_bound_were_one_text(earlier: Path) -> None:
    rewritten(earlier, lambda content: content["lines"]["row-norm"].update(unbounded="no noise; sums"))
    assert read_run(earlier).evaluation.lines["row-norm"].unbounded == ("no noise; sums",)


FILES = {"sarif": "audit.sarif", "bundle": "audit.zip", "model-card": "model-card.md"}


@pytest.mark.parametrize(("to", "file"), FILES.items())
def test_export_writes_its_results(earlier: Path, to: str, file: str) -> None:
    assert program.main(["export", str(earlier), "--to", to]) == 0
    assert (earlier / file).stat().st_size > 0


@pytest.mark.integration
def test_an_audit_is_compared_with_it(earlier: Path, tmp_path: Path) -> None:
    train(tmp_path, rounds=1, users=6, items=12)
    now = tmp_path / "now"
    attacks = ["--only", "row-norm", "--only", "popularity"]
    status = program.main(["audit", str(tmp_path / "deltas"), *attacks, "--out", str(now), "--reference", str(earlier)])
    assert status == 0
    (compared,) = read_results(now).changes
    assert compared["reference"] == "earlier"
    assert {row["attack"] for row in compared["rows"]} >= {"row-norm"}


def test_results_alone_have_a_page_and_are_no_reference(earlier: Path, tmp_path: Path) -> None:
    (earlier / "evaluation.json").unlink()
    assert program.main(["report", str(earlier), "--out", str(tmp_path / "page")]) == 0
    with pytest.raises(InputError, match=r"a folder with evaluation\.json"):
        read_reference(earlier)


@pytest.mark.parametrize("name", ["evaluation.json", "results.json"])
def test_one_of_its_files_that_is_damaged_is_named(earlier: Path, name: str) -> None:
    path = earlier / name
    path.write_text(path.read_text().replace("row-norm", "row-norn", 1).replace('"seed": 0', '"seed": ""'))
    with pytest.raises(InputError, match=name.replace(".", r"\.")):
        read_run(earlier)


def test_a_folder_without_a_run_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"evaluation\.json, or with the results\.json of an earlier version"):
        read_results(tmp_path)
