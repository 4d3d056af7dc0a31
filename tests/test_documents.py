"""What the documents say is what the code does: files, links, commands, the quickstart, tables of data and models."""

import importlib
import json
import os
import pkgutil
import re
import runpy
import sys
import tempfile
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click import NoSuchOption

from fedleak import datamodules
from fedleak.commands import program as fedleak
from fedleak.commands.shared.all_commands import all_commands
from fedleak.core.errors import InputError
from fedleak.core.places import table_files
from fedleak.modules import learners
from fedleak.training.data import FederatedDataModule
from fedleak.training.lightning.built_from_data import BuiltFromData
from tests.command_lines import check
from tests.fuzz.kills import in_process
from tests.places import ROOT, tracked

pytestmark = pytest.mark.inventory

DOCUMENTS = [path for path in tracked() if path.suffix == ".md"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FOLDERS = "attacks|bench|callbacks|changes|configs|(?:data)?modules|docs|fedleak|guard|recorder|requirements|tests"
PLACES = re.compile(rf"(?<![\w/.-])(?:{FOLDERS})/[\w./-]+\.(?:yaml|yml|md|py|sbatch)\b")
PAGE = re.compile(r"(?<![\w/.-])docs/[\w./-]+\.(?:md|yaml|yml|json)\b")
INVENTED = {"docs/a.md", "docs/b.md", "docs/families/none.md"}
"""Pages that tests invent."""
TABLES = re.compile(r"`((?:raifle|deanon|pac|decaf)_\w+?)(?:\.yaml)?`")


def missing(text: str) -> set[str]:
    """Files and tables that a text names and that are not there."""
    places = {place for place in PLACES.findall(text) if "NAME" not in place and not (ROOT / place).is_file()}
    tables = {name for name in TABLES.findall(text) if name not in table_files()}
    return places | tables


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_names_is_there(path: Path) -> None:
    assert missing(path.read_text(encoding="utf-8")) == set()


def test_the_pages_that_the_code_names_are_there() -> None:
    """Messages, docstrings and comments: a reader of an error must find the page that it names."""
    sources = [path for path in tracked() if path.suffix in (".py", ".toml", ".sbatch") or path.name == "Makefile"]
    sources += (ROOT / "configs").rglob("*.yaml")
    dangling = {
        (place, str(path.relative_to(ROOT)))
        for path in sources
        for place in PAGE.findall(path.read_text(encoding="utf-8"))
        if place not in INVENTED and "NAME" not in place and not (ROOT / place).is_file()
    }
    assert dangling == set()


def test_what_is_not_there_is_found() -> None:
    assert missing("`raifle_table99`, configs/table/none.yaml, `raifle_table5`") == {
        *("raifle_table99", "configs/table/none.yaml")
    }


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)(#[^)]*)?\)", path.read_text(encoding="utf-8"))
    for place, anchor in links:
        target = path.parent / place if place else path
        assert target.is_file(), place
        if not anchor:
            continue
        headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
        assert anchor[1:] in {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/index.md", "guard/README.md"])
def test_who_finds_a_hole_is_told_how_to_report_it(page: str) -> None:
    assert "SECURITY.md)" in (ROOT / page).read_text(encoding="utf-8")


def commands() -> list[Any]:
    """Every command of the README and of the pages that list commands."""
    texts = README + (ROOT / "docs" / "start" / "commands.md").read_text(encoding="utf-8")
    names = "|".join(all_commands())
    ours = rf"^(?:fedleak (?:{names})|python (?:train|attack)\.py)\b.*$"
    found = [("README", line) for line in re.findall(ours, texts, re.MULTILINE)]
    for name in ("sweeps", "clusters", "tables"):
        page = (ROOT / "docs" / "reference" / f"{name}.md").read_text(encoding="utf-8")
        blocks = re.findall(r"^```\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        found += [(name, line) for block in blocks for line in block.splitlines() if line]
    return [pytest.param(re.sub(r"\s+#.*", "", line), id=f"{name}: {line[:60]}") for name, line in found]


@pytest.mark.parametrize("command", commands())
def test_a_command(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", ["train.py"])
    check(command)


@pytest.mark.parametrize(
    ("command", "kind", "word"),
    [
        ("python train.py fit --config configs/train/fncf_synthetic.yaml --trainer.x 1", AssertionError, "trainer.x"),
        ("python attack.py audit DIR --nonsense 1", InputError, "--nonsense"),
        ("fedleak audit DIR --nonsense 1", InputError, "--nonsense"),
        ("fedleak audit --deltas DIR", InputError, "Type: fedleak audit DIR"),
        ("fedleak train fit --config configs/train/fncf_synthetic.yaml --trainer.x 1", AssertionError, "trainer.x"),
        ("torchrun --nonsense 2 train.py fit", SystemExit, "2"),
        ("NONSENSE=1 sbatch configs/cluster/train.sbatch", AssertionError, "NONSENSE"),
        ("wandb sweep --nonsense x", NoSuchOption, "--nonsense"),
        ("RECORDING=x sbatch configs/cluster/audit_array.sbatch --nonsense 1", InputError, "--nonsense"),
        ("fedleak reproduce raifle_table5 --engin submitit", InputError, "--engin"),
        ("kubectl apply -f configs/cluster/none.yaml", AssertionError, "none.yaml"),
        ("rm x", AssertionError, "rm"),
    ],
)
def test_a_wrong_command_is_found(command: str, kind: type[BaseException], word: str) -> None:
    with pytest.raises(kind, match=word):
        check(command)


@pytest.mark.integration
def test_the_quickstart_infers_every_interaction_twice_and_is_quiet(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    code += "\nassert found.results['n'].tolist() == [32] * len(found.results)"

    def run() -> int:
        os.chdir(tmp_path)
        tempfile.tempdir = str(tmp_path)
        for _ in range(2):
            exec(code, {"__name__": "__main__"})
        return 0

    status, said = in_process(run, tmp_path / "log", 120)
    assert status == 0, said
    kept = [line for line in re.split(r"[\r\n]+", said) if line.strip() and "%|" not in line]
    assert [float(line) for line in kept] == pytest.approx([1, 1], abs=0.001)


@pytest.mark.integration
@pytest.mark.usefixtures("without_figures")
def test_the_page_on_an_own_network_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "audit" / "own-network.md").read_text(encoding="utf-8")
    for name, code in zip(
        ("own_training.py", "my_net.py"), re.findall(r"```python\n(.*?)```", page, re.DOTALL), strict=True
    ):
        (tmp_path / name).write_text(code)
    assert len((tmp_path / "my_net.py").read_text().splitlines()) <= 20
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for command in "".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL)).splitlines():
        program, *words = command.split()
        if program == "fedleak":
            assert fedleak.main([*words, *(("--victims", "4") if words[0] == "audit" else ())]) == 0
        else:
            runpy.run_path(words[0])
    files = [tmp_path / folder / "results.json" for folder in ("own", "with-learner")]
    without, named = (json.loads(path.read_text()) for path in files)
    means = {(one["attack"], one["metric"]): one["mean"] for one in without["results"]}
    assert means["last-layer-counts", "l1"] < 0.5 * means["random-guess", "l1"]
    assert means["linkability", "auc"] > 0.9
    assert "1.running_mean" in {row["tensor"] for row in without["details"]["updates"]}
    assert "give --learner my_package.MyLearner" in without["not_run"]["decaf-match"]
    found = {one["attack"]: one["mean"] for one in named["results"] if one["metric"] == "l1"}
    assert max(found["decaf"], found["decaf-match"]) < 0.5 * found["random-guess"]
    assert "decaf-match" in capsys.readouterr().out
    del sys.modules["my_net"]  # a tutorial has another module of this name


def kinds(base: type) -> set[type]:
    """Subclasses in the project, of subclasses too."""
    subclasses: list[type] = base.__subclasses__()
    rooms = ("fedleak.datamodules", "fedleak.modules", "fedleak.training")
    own = {kind for kind in subclasses if kind.__module__.startswith(rooms)}
    return own | {kind for below in own for kind in kinds(below)}


@pytest.mark.parametrize(
    ("package", "base", "page", "fewest"),
    [(datamodules, FederatedDataModule, "data.md", 20), (learners, BuiltFromData, "models.md", 8)],
)
def test_the_table_of_data_sets_and_models_names_those_there_are(
    package: ModuleType, base: type, page: str, fewest: int
) -> None:
    """A new class may be described by its docstring alone; the page of the API has every class."""
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    text = (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8")
    found = [kind for kind in kinds(base) if vars(kind).get("folders") or (base is BuiltFromData and not kinds(kind))]
    listed = {kind for kind in found if f"`{kind.__name__}`" in text}
    assert len(listed) > fewest
    if unlisted := [kind.__name__ for kind in found if kind not in listed]:
        warnings.warn(f"not in docs/reference/{page}: {', '.join(unlisted)}", stacklevel=1)
    firsts = "".join(re.findall(r"^\|([^|]*`[A-Z][^|]*)\|", text, re.MULTILINE))
    assert set(re.findall(r"`([A-Z]\w+)`", firsts)) <= {kind.__name__ for kind in found}
    bundled = "".join(re.findall(r"^\|([^|]*)\| none", text, re.MULTILINE))  # no file, so no folder
    read = [kind for kind in listed if f"`{kind.__name__}`" not in bundled]
    assert {name for kind in read for name in vars(kind).get("folders", ()) if f"{name}/" not in text} == set()
