"""A joined page has the figures of its runs, drawn from their files."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch

from fedleak.core.errors import InputError
from fedleak.core.estimates import ROC_GRID
from fedleak.evaluation.auditing import AuditResult
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import concat, score_table, with_setting
from fedleak.evaluation.stored_run import read_results
from fedleak.reports.join import join_runs
from fedleak.reports.write_run import write_run
from tests.reports.toys import LINES

Left = Callable[..., Path]
MADE: dict[str, Path] = {}


@pytest.fixture
def left(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Left:
    """Copies what a run leaves into a folder; it is made once for an experiment and a setting."""

    def copied(name: str, experiment: str = "one", **setting: object) -> Path:
        key = f"{experiment} {setting}"
        if key not in MADE:
            MADE[key] = write(tmp_path_factory.mktemp("run"), experiment, **setting)
        return Path(shutil.copytree(MADE[key], tmp_path / name))

    return copied


def write(folder: Path, experiment: str, **setting: object) -> Path:
    """What a run leaves."""
    cell = {"data": "d", **setting}
    rows = [
        score_table(name, {"auc": [mean, mean + 0.1]}, setting=cell, seed=0, victims=[2**62 + 1, 2])
        for name, mean in (("codebook", 0.8), ("chance", 0.45))
    ]
    evaluation = Evaluation(
        scores=concat(rows), lines=dict(LINES), roc={"codebook": (2 * ROC_GRID.double().sqrt().numpy(), 2)}
    )
    profile = {"attack": "codebook", "seed": 0, "round": 0, "victim": 1, "class": [0, 1], "low": 0.4}
    shares = pd.DataFrame({**profile, "high": [0.6, None], "true": [0.4, 0.6], "inferred": [0.5, 0.5]})
    evaluation.profiles = with_setting(shares, **cell)
    found = AuditResult(evaluation, ["auc"], {"name": "d", "sha256": "0"}, seconds=1.0)
    write_run(found, directory=folder, experiment=experiment, persons=True)
    return folder


def captions(page: Path) -> list[str]:
    text = (page / "report.html").read_text(encoding="utf-8")
    return [part.partition("</figcaption>")[0].strip() for part in text.split("</b>")[1:] if "</figcaption>" in part]


@pytest.mark.integration
def test_runs_are_joined_with_the_figures_of_each_kind(tmp_path: Path, left: Left) -> None:
    runs = [left("one", epsilon=1), left("two", "two", epsilon="inf")]
    joined = join_runs(runs, tmp_path / "both", ["svg", "csv"], persons=True)
    assert (joined.experiment, joined.seconds, joined.data["name"]) == ("one + two", 2.0, "d")
    assert joined.results["setting.epsilon"].tolist() == [1, 1, "inf", "inf"]
    assert "setting.run" not in joined.results
    assert len(joined.differences) == 2
    assert len(read_results(tmp_path / "both").results) == 4
    kinds = ("against epsilon", "ROC curve", "class shares of every client", "class shares of client")
    assert all(any(kind in caption for caption in captions(tmp_path / "both")) for kind in kinds)
    assert (tmp_path / "both/figures/roc.svg").exists()
    table = pd.read_csv(tmp_path / "both/tables/results.csv")
    assert table["mean"].tolist() == pytest.approx([0.85, 0.5, 0.85, 0.5])


def test_one_run_is_drawn_as_it_was(tmp_path: Path, left: Left) -> None:
    run = left("one")
    join_runs([run], tmp_path / "again", persons=True)
    assert captions(tmp_path / "again") == captions(run)


@pytest.mark.integration
def test_runs_with_the_same_cells_differ_by_their_names(
    tmp_path: Path, left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = join_runs([left("one"), left("two", "two")], tmp_path / "both", persons=True)
    assert joined.results["setting.run"].tolist() == ["one", "one", "two", "two"]
    page = (tmp_path / "both/report.html").read_text(encoding="utf-8")
    assert all(f">codebook, {name}: " in page for name in ("one", "two"))  # curves of their own
    monkeypatch.setattr("fedleak.reports.join.write_page", lambda *_, **__: [])
    joined = join_runs([left("three"), left("four")], tmp_path / "same")
    assert joined.results["setting.run"].nunique() == 2
    runs = [*(left(name, name) for name in ("five", "six")), left("seven", "seven", epsilon=1)]
    joined = join_runs(runs, tmp_path / "three-runs")
    assert joined.results["setting.run"].dropna().tolist() == ["five", "five", "six", "six"]


def test_a_page_without_persons_shows_no_client_of_runs_that_were_written_with_them(tmp_path: Path, left: Left) -> None:
    join_runs([left("one")], tmp_path / "page", ["svg"])
    text = (tmp_path / "page/report.html").read_text(encoding="utf-8")
    assert "data-client=" not in text.partition("<script>")[0]
    assert len(captions(tmp_path / "page")) == 2  # of all clients
    assert not (tmp_path / "page/figures/class-shares.svg").exists()


def test_results_alone_are_enough(tmp_path: Path, left: Left) -> None:
    run = left("one")
    (tmp_path / "bare").mkdir()
    shutil.copy(run / "results.json", tmp_path / "bare")
    join_runs([tmp_path / "bare"], tmp_path / "page")
    assert len(captions(tmp_path / "page")) == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1, "sha256": "0"}', "\xff\x00", "[" * 100_000])
def test_damaged_evaluation_is_named(tmp_path: Path, left: Left, text: str) -> None:
    run = left("one")
    (run / "evaluation.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=r"evaluation\.json"):
        join_runs([run], tmp_path / "page")


def test_changed_byte_of_an_evaluation_is_noticed(tmp_path: Path, left: Left) -> None:
    run = left("one")
    text = (run / "evaluation.json").read_text()
    (run / "evaluation.json").write_text(text.replace("codebook", "codebooq", 1))
    with pytest.raises(InputError, match="damaged"):
        join_runs([run], tmp_path / "page")


def test_values_are_read_back_as_they_were(tmp_path: Path, left: Left) -> None:
    run = left("one", epsilon="inf", rounds=3)
    assert torch.tensor(pd.read_csv(run / "roc.csv")["tpr"].tolist()).max() == 1
    page = (run / "report.html").read_text(encoding="utf-8")
    join_runs([run], tmp_path / "again", persons=True)
    again = (tmp_path / "again" / "report.html").read_text(encoding="utf-8")
    assert page.count("<figure ") == again.count("<figure ")


def test_page_starts_with_what_changed_from_the_first_run(tmp_path: Path, left: Left) -> None:
    joined = join_runs([left("one"), left("two", "two")], tmp_path / "both", ["csv"])
    (compared,) = joined.changes
    assert (compared["reference"], compared["run"]) == ("one", "two")
    assert {row["change"] for row in compared["rows"]} == {0.0}
    page = (tmp_path / "both/report.html").read_text(encoding="utf-8")
    assert page.index("What changed</h2>") < page.index('<ol class="questions">')
    table = pd.read_csv(tmp_path / "both/changes.csv")
    assert table["verdict"].tolist() == ["equal"] * len(table)
    assert read_results(tmp_path / "both").changes == joined.changes
    join_runs([left("three")], tmp_path / "both")
    assert not (tmp_path / "both/changes.csv").exists()
