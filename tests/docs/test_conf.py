"""The documentation site has every page of docs/, within three clicks of its first page, README.md."""

import re
from pathlib import Path

from tests.places import ROOT, tracked

CONF = (ROOT / "docs" / "conf.py").read_text(encoding="utf-8")
GROUPS = ("start", "audit", "site", "theory", "reference")
PAGES = [
    path
    for path in tracked()
    if path.suffix == ".md" and path.parent in {ROOT / "docs", *(ROOT / "docs" / group for group in GROUPS)}
]
GENERATED = ROOT / "docs" / "generated"


def below(page: Path, text: str) -> list[Path]:
    """The pages that a page's tables of contents list."""
    blocks = re.findall(r"^```\{toctree\}\n(?::[^\n]*\n)*\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    return [(page.parent / f"{line}.md").resolve() for block in blocks for line in block.splitlines() if line]


def clicks() -> dict[Path, int]:
    """Number of clicks from the first page to each page that is written by hand."""
    first = ROOT / "README.md"
    found, new = {first: 0}, [first]
    while new:
        page = new.pop(0)
        for one in below(page, CONF if page == first else page.read_text(encoding="utf-8")):
            if not one.is_relative_to(GENERATED):
                assert one not in found, f"{one.name} is listed twice"
                found[one] = found[page] + 1
                new.append(one)
    return found


def test_every_page_is_on_the_site() -> None:
    assert len(PAGES) > 30
    assert {*PAGES} - {*clicks()} == set()


def test_the_index_has_every_page_in_its_group() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for group, part in zip(GROUPS, index.split("\n## ")[1:], strict=True):
        assert part.lower().startswith(group)
        named = {link for link in re.findall(r"\]\(([\w./-]+\.md)\)", part) if link.startswith(f"{group}/")}
        assert named == {f"{group}/{path.name}" for path in PAGES if path.parent.name == group}


def test_every_page_is_within_three_clicks_and_own_networks_within_two() -> None:
    found = clicks()
    assert max(found.values()) <= 3
    assert found[ROOT / "docs" / "audit" / "own-network.md"] <= 2
    assert "(docs/audit/own-network.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_a_page_that_is_listed_nowhere_is_found() -> None:
    assert below(ROOT / "docs" / "a.md", "```{toctree}\n:hidden:\n\nb\n../C\n```\n") == [
        ROOT / "docs" / "b.md",
        ROOT / "C.md",
    ]
    assert ROOT / "docs" / "a.md" not in clicks()
