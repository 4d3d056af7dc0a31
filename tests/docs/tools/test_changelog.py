"""A release takes the texts of changes/ into the changelog, and refuses what is no next version or no short text."""

import datetime
from pathlib import Path

import pytest

from docs.tools import changelog
from docs.tools.changelog import HEADING, checked_fragment, newest_release, release
from fedleak_recorder.errors import InputError
from tests.places import ROOT

DATE = datetime.date(2027, 1, 2)
BEFORE = "# Changelog\n\nPromises.\n\n## 0.2.0 (2026-11-28)\n\n* Old.\n"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A changelog, two texts, and a file that keeps the version that was set."""
    (tmp_path / "CHANGELOG.md").write_text(BEFORE)
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes/README.md").write_text("# How to\n")
    (tmp_path / "changes/b.md").write_text("* Second.\n")
    (tmp_path / "changes/a.md").write_text("* First, in\n  two lines.\n\n")
    monkeypatch.setattr(changelog, "set_version", lambda root, version: (root / "version").write_text(version))
    return tmp_path


def test_a_release_is_the_newest_part_and_its_texts_are_gone(checkout: Path) -> None:
    release(checkout, "0.3.0", DATE)
    part = "## 0.3.0 (2027-01-02)\n\n* First, in\n  two lines.\n* Second.\n\n"
    assert (checkout / "CHANGELOG.md").read_text() == BEFORE.replace("## 0.2.0", f"{part}## 0.2.0")
    assert [path.name for path in (checkout / "changes").iterdir()] == ["README.md"]
    assert (checkout / "version").read_text() == "0.3.0"


@pytest.mark.parametrize("version", ["0.2.0", "0.1.9", "0.3", "v0.3.0", "next"])
def test_a_version_that_is_not_the_next_one_changes_nothing(checkout: Path, version: str) -> None:
    with pytest.raises(InputError, match=r"after 0\.2\.0"):
        release(checkout, version, DATE)
    assert (checkout / "CHANGELOG.md").read_text() == BEFORE
    assert not (checkout / "version").exists()


def test_versions_are_compared_as_numbers(checkout: Path) -> None:
    release(checkout, "0.10.0", DATE)
    assert newest_release((checkout / "CHANGELOG.md").read_text()) == "0.10.0"
    with pytest.raises(InputError, match=r"after 0\.10\.0"):
        release(checkout, "0.9.0", DATE)


@pytest.mark.parametrize(
    "text", ["", "No point.", "* A\n* B", "* A\n## B", "* A\n  b\n  c\n  d", f"* {'a' * 120}", "# A"]
)
def test_a_text_of_another_form_is_refused(checkout: Path, text: str) -> None:
    (checkout / "changes/c.md").write_text(text)
    with pytest.raises(InputError, match=r"one point of a list.* in c\.md"):
        release(checkout, "0.3.0", DATE)
    assert (checkout / "CHANGELOG.md").read_text() == BEFORE


def test_a_release_of_nothing_is_refused(checkout: Path) -> None:
    for name in ("a.md", "b.md"):
        (checkout / "changes" / name).unlink()
    with pytest.raises(InputError, match="texts in changes/"):
        release(checkout, "0.3.0", DATE)


def test_the_command_says_what_is_wrong_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert changelog.main(["0.0.1"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_project_has_releases_of_about_ten_lines_and_texts_of_the_right_form() -> None:
    parts = HEADING.split((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    # After the head, each release is its number and its text.
    for number, text in zip(parts[1::2], parts[2::2], strict=True):
        points = [line for line in text.splitlines() if line.startswith("* ")]
        assert 1 <= len(points) <= 12, number
    for path in (ROOT / "changes").glob("*.md"):
        if path.name != "README.md":
            checked_fragment(path)
