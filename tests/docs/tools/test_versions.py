"""The version is the same wherever it stands, and is set in all these places."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from docs.tools.changelog import newest_release
from docs.tools.versions import STATED, set_version, stated_versions
from fedleak_recorder.errors import InputError
from tests.places import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the files that state a version."""
    for name in stated_versions(ROOT):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for words in (["init", "--quiet"], ["add", "."]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def test_all_files_state_the_version_of_the_newest_release() -> None:
    newest = newest_release((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    versions = stated_versions(ROOT)
    assert len(versions) >= len(STATED) + 3, "three distributions, two of which have a package that states it"
    assert {name: version for name, version in versions.items() if version != newest} == {}


@pytest.mark.parametrize("folder", [".", "guard"])
def test_a_distribution_needs_the_others_of_its_own_release(folder: str) -> None:
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    major, minor, _ = map(int, project["version"].split("."))
    bound = f">={major}.{minor},<{major}.{minor + 1}"
    assert f"fedleak-recorder{bound}" in project["dependencies"]
    for dependency in project["optional-dependencies"].get("guard", ()):
        assert dependency == f"fedleak-guard{bound}"


def test_a_version_is_set_in_all_files_and_nothing_else_changes(checkout: Path) -> None:
    before = {name: (checkout / name).read_text(encoding="utf-8") for name in stated_versions(checkout)}
    (old,) = set(stated_versions(checkout).values())
    set_version(checkout, "7.8.9")
    assert stated_versions(checkout) == dict.fromkeys(before, "7.8.9")
    for name, text in before.items():
        changed = (checkout / name).read_text(encoding="utf-8")
        assert changed.replace("7.8.9", old) == text
        assert len(re.findall(r"7\.8\.9", changed)) == 1


def test_a_place_that_is_gone_is_named(checkout: Path) -> None:
    (checkout / "CITATION.cff").write_text("title: fedleak\n")
    with pytest.raises(InputError, match=r"a version in CITATION\.cff"):
        stated_versions(checkout)
