"""Every number of docs/results.md is that of a committed file."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from docs.tools import results_page
from docs.tools.results_page import FOLDER, PAGE, TEMPLATE, WHAT_LEAKED, Published, add, figures, page, what_leaked
from fedleak.core.errors import InputError
from fedleak.evaluation.run import read_published
from tests.places import ROOT, tracked
from tests.reports.toys import cell, run, table


@pytest.fixture
def published() -> Published:
    rows = [
        cell("codebook", 0.1 * q + (0.5 if e == "inf" else 0), queries=q, epsilon=e) for q in (1, 2) for e in ("inf", 1)
    ]
    with_paper = [{**row, "paper": 0.25} for row in rows[:1]] + [{**row, "paper": float("nan")} for row in rows[1:]]
    return Published("toy", run(results=table(*with_paper)))


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    """The figures of the page, by name."""
    return {name: content.decode() for name, content in figures().items()}


def test_the_page_is_what_the_files_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run make results"
    assert WHAT_LEAKED.read_text(encoding="utf-8") == what_leaked(), "run make results"


def test_every_figure_is_on_a_page() -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in tracked() if path.suffix == ".md")
    unused = {path.name for path in (ROOT / "docs" / "figures").iterdir() if f"figures/{path.name})" not in pages}
    assert unused == set()


def test_the_template_types_no_result() -> None:
    text = re.sub(
        r"{%.*?%}|{{.*?}}|{#.*?#}|`[^`]*`", "", (FOLDER / TEMPLATE).read_text(encoding="utf-8"), flags=re.DOTALL
    )
    typed = [line for line in text.splitlines() if re.search(r"\d\.\d|(?<!\b95)%", line)]
    assert not typed, "a decimal number or a percentage outside of an expression; settings stand in backticks"


def test_the_page_names_the_tables_that_have_no_bootstraps() -> None:
    named = re.search(r"Later tables \(([^)]*)\) have", PAGE.read_text(encoding="utf-8"))
    assert named is not None
    wide = [path.stem for path in sorted(FOLDER.glob("*.json")) if '"luck"' in path.read_text(encoding="utf-8")]
    assert named[1] == ", ".join(f"`{name}`" for name in wide)


def test_published_results_name_their_commit() -> None:
    for path in FOLDER.glob("*.json"):
        assert re.fullmatch(r"[0-9a-f]{40}", read_published(path).commit or ""), path.name


def test_the_history_holds_the_commits_of_published_results() -> None:
    if git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("the history is not here")
    commits = set(git("rev-list", "HEAD").split())
    lost = {path.stem for path in FOLDER.glob("*.json") if read_published(path).commit not in commits}
    assert not lost, "measured at commits that nobody can look at: run these tables again"


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def test_a_grid_shows_every_cell_with_its_interval_and_n(published: Published) -> None:
    lines: dict[str, Any] = {"the paper": {"attack": "codebook", "paper": True}, "ours": "codebook"}
    assert published.grid("auc", lines, ("epsilon", ["inf", 1]), ("queries", [1, 2])).splitlines() == [
        "| | inf | 1 | interval within | n |",
        "| --- | --- | --- | --- | --- |",
        "| the paper | 0.25 / - | | | |",
        "| ours | 0.60 / 0.70 | 0.10 / 0.20 | 0.03 | 20 |",
    ]


def test_a_single_value_has_no_interval() -> None:
    published = Published("toy", run(results=table(cell("bound", 0.2, n=1, half=0), cell("codebook", 0.2, half=0.1))))
    assert published.full("bound", "auc") == "0.200 (n = 1)"
    assert published.grid("auc", {"b": "bound"}, {"": {}}).splitlines()[-1] == "| b | 0.20 | | 1 |"


@pytest.mark.parametrize("name", ["raifle_bounds", "raifle_bounds_fncf", "raifle_bounds_images"])
def test_attacks_are_drawn_below_their_bound(name: str, drawn: dict[str, str]) -> None:
    kept = (PAGE.parent / "figures" / f"{name}.svg").read_text()
    results = read_published(FOLDER / f"{name}.json").results
    for label in results[results["metric"] == "auc"]["attack"]:
        assert f">{label}<" in drawn[f"{name}.svg"]
        assert f">{label}<" in kept
    assert f"(figures/{name}.svg)" in PAGE.read_text(encoding="utf-8")


def test_a_value_names_one_cell(published: Published) -> None:
    assert published.value("codebook", "auc", 2, queries=2, epsilon=1) == "0.20"
    assert published.full("codebook", "auc", 2, queries=2, epsilon=1) == "0.20 (0.17 to 0.23, n = 20)"
    for setting in ({"queries": 2}, {"queries": 3, "epsilon": 1}, {"other": 1}):
        with pytest.raises(InputError, match="codebook"):
            published.value("codebook", "auc", **setting)


def test_a_ratio_is_that_of_the_paired_differences() -> None:
    toy = Published("toy", run())
    text = toy.grid("auc", {"ours": {"attack": "direction", "against": "chance"}}, {"d": {"data": "d"}}, digits=1)
    assert text.splitlines()[-1] == "| ours | 1.4 (1.2 to 1.6) | | 10, 2 seeds |"


def test_results_of_changed_code_are_refused(tmp_path: Path) -> None:
    for commit in (None, "a" * 40 + "+"):
        run(commit=commit).write(tmp_path)
        with pytest.raises(InputError, match="commit"):
            add(tmp_path, folder=tmp_path)


def test_added_results_are_read_back_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(commit="a" * 40, command="python attack.py reproduce e.yaml").write(tmp_path)
    folder = tmp_path / "results"
    folder.mkdir()
    path = add(tmp_path, folder=folder)
    assert path.name == "e.json"
    assert json.loads(path.read_text(encoding="utf-8"))["results"][0]["mean"] == 0.7
    (folder / TEMPLATE).write_text("AUC {{ e.value('direction', 'auc', 1) }}\n{{ evidence() }}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"compares with the paper.*\['e'\]"):
        page(folder)
    (folder / TEMPLATE).write_text(
        "{{ e.comparable('no.') }} AUC {{ e.value('direction', 'auc', 1) }}\n{{ evidence() }}\n", encoding="utf-8"
    )
    monkeypatch.setattr(results_page, "FOLDER", folder)
    text = page(folder)
    assert text.startswith("Comparable with the paper: no. AUC 0.7\n")
    assert "`python attack.py reproduce e.yaml` | `aaaaaaaaaaaa` | d `0`" in text
