"""The pages of the documentation that the attacks' own descriptions make."""

import re
import warnings
from pathlib import Path

import pytest

from docs.tools.attack_pages import FAMILIES, RESULTS, SECTIONS, is_listed, own_text, pages
from fedleak.commands.shared.parser import parsed
from fedleak.core.errors import InputError
from fedleak.evaluation.registry import REGISTRY
from fedleak.evaluation.run import read_published

pytestmark = pytest.mark.inventory


TABLE = "decaf_tables3to7"


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    """The pages with the numbers of one published table: all of them take seconds to read and to draw."""
    published = {TABLE: read_published(RESULTS / f"{TABLE}.json").results}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("docs.tools.attack_pages._results", lambda: published)
        return pages()


def test_every_attack_has_one_section_on_the_page_of_its_family(made: dict[str, str]) -> None:
    for kind in REGISTRY.values():
        page = made[f"{kind.family}.md"]
        assert page.count(f"(attack-{kind.family}-{kind.name})=\n### {kind.name}\n") == 1
        described = f".. autoclass:: {kind.__module__}.{kind.__name__}\n" in page
        assert described == (kind.variant_of is None)
    early = made["composition.md"].partition("\n### decaf-early\n")[2].partition("\n### ")[0]
    assert early.strip().startswith("|")
    assert "Variant of [decaf](#attack-composition-decaf) with `solver = 'early-stopped'`." in early
    targets = [target for page in made.values() for target in re.findall(r"^\((attack-.*)\)=$", page, re.MULTILINE)]
    assert len(targets) == len(set(targets)) == len(REGISTRY)
    assert all(is_listed(kind) for kind in REGISTRY.values())


def test_the_matrix_has_every_attack_with_what_it_needs(made: dict[str, str]) -> None:
    choose = made["index.md"]
    by_need, threats = choose.partition("## By what the recording holds")[2].split("## Threat models")
    for kind in REGISTRY.values():
        link = f"[{kind.name}](#attack-{kind.family}-{kind.name})"
        assert threats.count(f"| {link} |") == 1
        assert kind.threat_model.knows in threats
        assert f"| {', '.join(kind.public_names().names)} |" in threats
        (row,) = re.findall(rf"^\| {re.escape(link)} .*$", by_need, re.MULTILINE) or [""]
        held = kind.threat_model.fields
        assert row.count("✓") == (0 if kind.baseline else len(held))
    for family in {kind.family for kind in REGISTRY.values()}:
        assert f"{{doc}}`{family}`" in choose
        assert f"\n{family}\n" in choose


def test_a_family_says_its_formula_and_its_limits(
    made: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    families, described = {kind.family for kind in REGISTRY.values()}, {file.stem for file in FAMILIES.glob("*.md")}
    assert described <= families
    if families - described:
        warnings.warn(f"families without a page in docs/families: {families - described}", stacklevel=1)
    assert all(section in made[f"{family}.md"] for family in described for section in SECTIONS)
    assert own_text("none") == ""
    monkeypatch.setattr("docs.tools.attack_pages.FAMILIES", tmp_path)
    (tmp_path / "none.md").write_text(SECTIONS[0])
    with pytest.raises(InputError, match=r"docs/families/none\.md"):
        own_text("none")


def test_a_family_shows_its_published_numbers(made: dict[str, str]) -> None:
    decaf = next(line for line in made["composition.md"].splitlines() if "| `decaf` |" in line)
    assert f"`{TABLE}`" in made["composition.md"]
    assert re.search(r"\| \d\.\d{3} to \d\.\d{3} \|", decaf)


def test_tables_are_rectangular(made: dict[str, str]) -> None:
    for name, page in made.items():
        for block in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
            widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
            assert len(widths) == 1, (name, block.splitlines()[0])


def test_every_attack_has_a_command_that_is_understood(made: dict[str, str]) -> None:
    lines = [line for page in made.values() for line in re.findall(r"^fedleak (run .*)$", page, re.MULTILINE)]
    assert len(lines) == len(REGISTRY)
    for line in lines:
        assert parsed(line.split())[1].recording == "runs/NAME/deltas"
