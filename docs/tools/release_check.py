"""Check of built distributions: what a wheel has to hold, and that the sdist builds the same wheel.

    python -m docs.tools.release_check runs/release/dist PROJECT... --uv .uv/bin/uv

A PROJECT is the folder of a pyproject.toml, from which the wheel and the sdist in the first folder were built. ``make
release`` builds them from the last commit, and then runs this. It reads what was built and uploads nothing.
"""

import argparse
import configparser
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesParser
from email.policy import default
from pathlib import Path, PurePosixPath

from fedleak_recorder.errors import InputError, require

_WRITTEN_BY_PYTHON = ("__pycache__",)
"""Folders in a package that are no part of it."""


@dataclass(frozen=True)
class Project:
    """What a distribution is built from.

    Attributes:
        folder: folder of the pyproject.toml.
        name: of the distribution, e.g. ``fedleak-guard``.
        version: of the distribution.
    """

    folder: Path
    name: str
    version: str

    @property
    def package(self) -> str:
        """The one name that an installation adds to what can be imported."""
        return self.name.replace("-", "_")

    @property
    def base(self) -> str:
        """First part of the names of what is built."""
        return f"{self.package}-{self.version}"

    def files(self) -> dict[str, bytes]:
        """Content of every file of the package, also below links, by its path in a wheel."""
        contents: dict[str, bytes] = {}
        for folder, folders, names in os.walk(self.folder / self.package, followlinks=True):
            folders[:] = sorted(set(folders) - {*_WRITTEN_BY_PYTHON})
            for name in names:
                path = Path(folder, name)
                contents[path.relative_to(self.folder).as_posix()] = path.read_bytes()
        return contents


def main(words: list[str] | None = None) -> int:
    """The command line; returns the exit status, 1 where something is wrong with what was built."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dist", type=Path, help="folder of the wheels and sdists")
    parser.add_argument("projects", type=Path, nargs="+", metavar="PROJECT", help="folder of a pyproject.toml")
    parser.add_argument("--uv", type=Path, required=True, help="path of uv, which builds a wheel of each sdist")
    arguments = parser.parse_args(words)
    problems: list[str] = []
    try:
        for folder in arguments.projects:
            problems += problems_of_release(arguments.dist, read_project(folder), arguments.uv)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        return 1
    print(f"{arguments.dist}: wheels and sdists of {len(arguments.projects)} projects are whole.")
    return 0


def read_project(folder: Path) -> Project:
    """The project of a folder.

    Raises:
        InputError: the folder has no pyproject.toml.
    """
    path = folder / "pyproject.toml"
    require(path.is_file(), "a folder with a pyproject.toml", str(folder), "Give the folder of a distribution.")
    stated = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    return Project(folder, stated["name"], stated["version"])


def problems_of_release(dist: Path, project: Project, uv: Path) -> list[str]:
    """What is wrong with the wheel and the sdist of a project, one line each.

    Args:
        dist: folder of both.
        project: what they were built from.
        uv: program that builds a wheel of the sdist.

    Raises:
        InputError: the folder does not have exactly one of each.
    """
    wheel = _only(dist, f"{project.package}-*.whl")
    sdist = _only(dist, f"{project.package}-*.tar.gz")
    contents = read_wheel(wheel)
    of_wheel = [f"{wheel.name}: {problem}" for problem in problems_of_wheel(contents, project)]
    of_sdist = [f"{sdist.name}: {problem}" for problem in problems_of_sdist(sdist, contents, project, uv)]
    return of_wheel + of_sdist


def _only(dist: Path, pattern: str) -> Path:
    paths = sorted(dist.glob(pattern))
    names = ", ".join(path.name for path in paths) or "none"
    require(len(paths) == 1, f"one file {pattern} in {dist}", names, "Run `make release`, which empties the folder.")
    return paths[0]


def read_wheel(path: Path) -> dict[str, bytes]:
    """Content of each file of a wheel, by name."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def problems_of_wheel(contents: Mapping[str, bytes], project: Project) -> Iterator[str]:
    """What is wrong with the content of a wheel, one line each.

    Args:
        contents: content of each file, by name.
        project: what the wheel was built from.
    """
    about = f"{project.base}.dist-info"
    top = {PurePosixPath(name).parts[0] for name in contents}
    if top != {project.package, about}:
        yield f"expected {project.package} and {about} at the top; found {', '.join(sorted(top))}"
    yield from _problems_of_files(contents, project)
    metadata = contents.get(f"{about}/METADATA")
    if metadata is None:
        yield f"no {about}/METADATA"
        return
    yield from _problems_of_metadata(BytesParser(policy=default).parsebytes(metadata), contents, project)
    yield from _problems_of_commands(contents, about)


def _problems_of_files(contents: Mapping[str, bytes], project: Project) -> Iterator[str]:
    """Files of the package that a wheel lacks, has in addition or has otherwise."""
    of_project = project.files()
    of_wheel = {name: content for name, content in contents.items() if name.startswith(f"{project.package}/")}
    for name in sorted(of_project.keys() - of_wheel.keys()):
        yield f"lacks {name}"
    for name in sorted(of_wheel.keys() - of_project.keys()):
        yield f"has {name}, which the project does not"
    for name in sorted(of_project.keys() & of_wheel.keys()):
        if of_project[name] != of_wheel[name]:
            yield f"has another {name} than the project"
    if f"{project.package}/py.typed" not in contents:
        yield f"lacks {project.package}/py.typed, so that type checkers do not read its types"


def _problems_of_metadata(metadata: Message, contents: Mapping[str, bytes], project: Project) -> Iterator[str]:
    """What is wrong with the description of a distribution."""
    if (metadata["Name"], metadata["Version"]) != (project.name, project.version):
        named = f"{metadata['Name']} {metadata['Version']}"
        yield f"expected {project.name} {project.version} in its metadata; found {named}"
    for field in ("Summary", "Requires-Python", "License-Expression"):
        if not metadata[field]:
            yield f"no {field} in its metadata"
    if metadata["Description-Content-Type"] != "text/markdown" or not str(metadata.get_payload()).strip():
        yield "no description in Markdown in its metadata"
    licences = metadata.get_all("License-File", [])
    if not licences:
        yield "no License-File in its metadata"
    for name in licences:
        if f"{project.base}.dist-info/licenses/{name}" not in contents:
            yield f"lacks the licence {name}"
    for needed in metadata.get_all("Requires-Dist", []):
        # An address would be a file on one machine, or code that no index keeps.
        if "@" in needed:
            yield f"needs {needed!r} from an address"


def _problems_of_commands(contents: Mapping[str, bytes], about: str) -> Iterator[str]:
    """Commands whose module is not in the wheel."""
    stated = configparser.ConfigParser(delimiters=("=",))
    stated.read_string(contents.get(f"{about}/entry_points.txt", b"").decode())
    for section in stated.sections():
        for command, target in stated[section].items():
            module = target.partition(":")[0].strip().replace(".", "/")
            if not {f"{module}.py", f"{module}/__init__.py"} & contents.keys():
                yield f"lacks the module of {command} = {target}"


def problems_of_sdist(sdist: Path, contents: Mapping[str, bytes], project: Project, uv: Path) -> Iterator[str]:
    """What is wrong with an sdist, one line each.

    Args:
        sdist: the archive.
        contents: content of the files of the wheel that was built without it.
        project: what both were built from.
        uv: program that builds a wheel.
    """
    with tempfile.TemporaryDirectory() as temporary, tarfile.open(sdist) as archive:
        folder = Path(temporary)
        top = {PurePosixPath(name).parts[0] for name in archive.getnames()}
        if top != {project.base}:
            yield f"expected {project.base} at the top; found {', '.join(sorted(top))}"
            return
        # Python 3.11 has this filter from 3.11.4 on; older ones ignore the attribute.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        archive.extractall(folder)
        # uv builds its own kind of project without a network only from a folder.
        command = [str(uv), "build", "--wheel", "--offline", "--no-build-isolation", "--python", sys.executable]
        command += ["--out-dir", str(folder), str(folder / project.base)]
        build = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if build.returncode != 0:
            yield f"no wheel can be built of it: {' '.join(build.stderr.split())[-300:]}"
            return
        built_contents = read_wheel(_only(folder, f"{project.package}-*.whl"))
    # The list of files in a wheel follows from the others.
    for name in sorted(built_contents.keys() | contents.keys()):
        if not name.endswith(".dist-info/RECORD") and built_contents.get(name) != contents.get(name):
            yield f"the wheel that is built of it has another {name}"


if __name__ == "__main__":
    sys.exit(main())
