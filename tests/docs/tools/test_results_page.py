"""Every number of docs/results.md is that of a committed file."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from docs.tools import results_page
from docs.tools.results_page import FOLDER, PAGE, TEMPLATE, WHAT_LEAKED, add, figures, page, what_leaked
from fedleak.core.errors import InputError
from fedleak.evaluation.run import read_published
from tests.places import ROOT, tracked
from tests.reports.toys import run


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    """The figures of the page, by name."""
    return {name: content.decode() for name, content in figures().items()}


@pytest.mark.integration
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


@pytest.fixture(scope="module")
def commits() -> dict[str, str | None]:
    """The commit of each published file; whether the rest of a file is right is for the test of the page."""
    return {path.stem: json.loads(path.read_bytes())["commit"] for path in FOLDER.glob("*.json")}


def test_published_results_name_their_commit(commits: dict[str, str | None]) -> None:
    assert commits
    assert [name for name, commit in commits.items() if not re.fullmatch(r"[0-9a-f]{40}", commit or "")] == []


def test_the_history_holds_the_commits_of_published_results(commits: dict[str, str | None]) -> None:
    if git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("the history is not here")
    known = set(git("rev-list", "HEAD").split())
    lost = {name for name, commit in commits.items() if commit not in known}
    assert not lost, "measured at commits that nobody can look at: run these tables again"


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


@pytest.mark.integration
@pytest.mark.parametrize("name", ["raifle_bounds", "raifle_bounds_fncf", "raifle_bounds_images"])
def test_attacks_are_drawn_below_their_bound(name: str, drawn: dict[str, str]) -> None:
    kept = (PAGE.parent / "figures" / f"{name}.svg").read_text()
    results = read_published(FOLDER / f"{name}.json").results
    for label in results[results["metric"] == "auc"]["attack"]:
        assert f">{label}<" in drawn[f"{name}.svg"]
        assert f">{label}<" in kept
    assert f"(figures/{name}.svg)" in PAGE.read_text(encoding="utf-8")


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
