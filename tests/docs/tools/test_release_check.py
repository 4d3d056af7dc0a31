"""What was built is whole; what lacks a part, or has one too many, is named."""

import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from docs.tools.release_check import (
    Project,
    main,
    problems_of_release,
    problems_of_wheel,
    read_project,
    read_wheel,
)
from fedleak_recorder.errors import InputError
from tests.places import ROOT

UV = ROOT / ".uv/bin/uv"
ABOUT = "my_audit-1.2.3.dist-info"
METADATA = """Metadata-Version: 2.4
Name: my-audit
Version: 1.2.3
Summary: An audit
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Dist: numpy>=1.26
Requires-Python: >=3.11
Description-Content-Type: text/markdown

# my-audit
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A package with a module, a data file below a link, and what Python compiled."""
    package = tmp_path / "project/my_audit"
    package.mkdir(parents=True)
    for name in ("__init__.py", "command.py", "py.typed"):
        (package / name).write_text("")
    (tmp_path / "project/tables").mkdir()
    (tmp_path / "project/tables/a.yaml").write_text("a: 1\n")
    (package / "tables").symlink_to("../tables")
    (package / "__pycache__").mkdir()
    (package / "__pycache__/command.cpython-311.pyc").write_bytes(b"")
    (tmp_path / "project/pyproject.toml").write_text('[project]\nname = "my-audit"\nversion = "1.2.3"\n')
    return read_project(tmp_path / "project")


def whole(project: Project) -> dict[str, bytes]:
    """Content of the right wheel of `project`."""
    return {
        **project.files(),
        f"{ABOUT}/METADATA": METADATA.encode(),
        f"{ABOUT}/entry_points.txt": b"[console_scripts]\nmy-audit = my_audit.command:main\n",
        f"{ABOUT}/licenses/LICENSE": b"You may.",
        f"{ABOUT}/RECORD": b"",
    }


def test_a_whole_wheel_has_no_problem_and_files_below_links(project: Project) -> None:
    assert [*problems_of_wheel(whole(project), project)] == []
    assert sorted(project.files()) == [
        *("my_audit/__init__.py", "my_audit/command.py", "my_audit/py.typed", "my_audit/tables/a.yaml")
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"my_audit/tables/a.yaml": None}, "lacks my_audit/tables/a.yaml", id="no data file"),
        pytest.param({"my_audit/py.typed": None}, "lacks my_audit/py.typed, so", id="no types"),
        pytest.param({"my_audit/command.py": None}, "the module of my-audit = my_audit.command:main", id="no command"),
        pytest.param({"my_audit/notes.txt": b""}, "has my_audit/notes.txt, which", id="a file too many"),
        pytest.param({"my_audit/command.py": b"#"}, "another my_audit/command.py", id="another file"),
        pytest.param({"client/__init__.py": b""}, "found client, my_audit", id="a second package"),
        pytest.param({"train.py": b""}, "train.py", id="a module at the top"),
        pytest.param({f"{ABOUT}/METADATA": None}, "no my_audit-1.2.3.dist-info/METADATA", id="no metadata"),
        pytest.param({f"{ABOUT}/licenses/LICENSE": None}, "lacks the licence LICENSE", id="no licence"),
    ],
)
def test_a_wheel_of_other_files_is_named(project: Project, changes: dict[str, bytes | None], said: str) -> None:
    changed = {name: content for name, content in {**whole(project), **changes}.items() if content is not None}
    assert any(said in problem for problem in problems_of_wheel(changed, project))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("Version: 1.2.3", "Version: 1.2.2", "found my-audit 1.2.2"),
        ("Name: my-audit", "Name: other", "found other 1.2.3"),
        ("Summary: An audit\n", "", "no Summary"),
        ("Requires-Python: >=3.11\n", "", "no Requires-Python"),
        ("License-File: LICENSE\n", "", "no License-File"),
        ("text/markdown", "text/plain", "no description in Markdown"),
        ("# my-audit\n", "", "no description in Markdown"),
        ("numpy>=1.26", "numpy @ file:///srv/numpy", "from an address"),
    ],
)
def test_wrong_metadata_are_named(project: Project, old: str, new: str, said: str) -> None:
    changed = {**whole(project), f"{ABOUT}/METADATA": METADATA.replace(old, new).encode()}
    assert any(said in problem for problem in problems_of_wheel(changed, project))


def test_a_folder_without_a_wheel_or_a_project_is_one_message(
    project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=r"one file my_audit-\*\.whl"):
        problems_of_release(tmp_path, project, UV)
    assert main([str(tmp_path), str(tmp_path), "--uv", str(UV)]) == 2
    assert "pyproject.toml" in capsys.readouterr().err


@pytest.mark.integration
@pytest.mark.skipif(not UV.is_file(), reason="uv is where `make` installs it")
@pytest.mark.parametrize("name", ["recorder", "guard"])
def test_what_is_built_of_this_checkout_is_whole(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, dist = ROOT / name, tmp_path / "dist"
    build = [str(UV), "build", "--quiet", "--offline", "--no-build-isolation", "--python", sys.executable]
    subprocess.run([*build, "--sdist", "--wheel", "--out-dir", str(dist), str(folder)], check=True)
    check = [str(dist), str(folder), "--uv", str(UV)]
    assert main(check) == 0, capsys.readouterr().err
    _without(next(dist.glob("*.tar.gz")), "py.typed")
    assert main(check) == 1
    assert f"has another {read_project(folder).package}/py.typed" in capsys.readouterr().err
    _without(next(dist.glob("*.tar.gz")), "pyproject.toml")
    assert main(check) == 1
    assert "no wheel can be built of it" in capsys.readouterr().err


def _without(sdist: Path, left_out: str) -> None:
    """Writes an sdist again without the files of one name."""
    with tarfile.open(sdist) as archive:
        parts = [(part, archive.extractfile(part)) for part in archive.getmembers()]
        contents = [(part, None if file is None else file.read()) for part, file in parts]
    with tarfile.open(sdist, "w:gz") as archive:
        for part, content in contents:
            if not part.name.endswith(f"/{left_out}"):
                archive.addfile(part, None if content is None else io.BytesIO(content))


def test_folders_of_a_wheel_are_no_files(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
        archive.writestr("a/", "")
        archive.writestr("a/b.py", "1")
    assert read_wheel(tmp_path / "a.whl") == {"a/b.py": b"1"}
