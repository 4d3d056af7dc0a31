"""An environment as a user has it: third-party packages, and fedleak, its recorder and its guard from their wheels."""

import fcntl
import hashlib
import shutil
import site
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from tests.places import ROOT, copy_checkout, tracked

ENVIRONMENT = ROOT / "runs" / "wheel"
"""Kept from one run to the next; made again once a file that the wheels are built from has changed."""
BUILT_FROM = {"attacks", "callbacks", "configs", "datamodules", "docs", "fedleak", "guard", "modules", "recorder"}
BUILT_FROM |= {"LICENSE", "README.md", "pyproject.toml"}
"""Files and folders with what goes into the wheels: of `docs`, results and the glossary."""
NO_INDEX = ("--quiet", "--offline", "--no-config")


@dataclass(frozen=True)
class Environment:
    """A Python with our three wheels, and these."""

    folder: Path

    @property
    def programs(self) -> Path:
        """Folder of the commands."""
        return self.folder / "bin"

    @property
    def wheels(self) -> list[Path]:
        """The wheels that are installed."""
        return sorted((self.folder / "wheels").glob("*.whl"))


def uv() -> str | None:
    """The program that builds and installs, in the checkout or on the path."""
    own = ROOT / ".uv" / "bin" / "uv"
    return str(own) if own.is_file() else shutil.which("uv")


def build_wheels(folder: Path, program: str) -> None:
    """Builds the wheels without an index, fedleak's through an archive of its sources, from a copy of the checkout.

    In the checkout itself, setuptools would leave its folders, and read them again at the next build.
    """
    with_setuptools = ("--python", sys.executable, "--no-build-isolation")
    shutil.rmtree(folder, ignore_errors=True)
    copy = folder.resolve() / "copy"
    copy_checkout(copy)
    for part, options in {".": with_setuptools, "recorder": ("--wheel",), "guard": ("--wheel",)}.items():
        command = [program, "build", *NO_INDEX, *options, "--out-dir", str(folder.resolve()), part]
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    shutil.rmtree(copy)


def environment(program: str, folder: Path = ENVIRONMENT) -> Environment:
    """The environment, made if it is not there; other processes wait until it is."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp, state = folder / "stamp", _state()
        if not stamp.is_file() or stamp.read_text(encoding="utf-8") != state:
            stamp.unlink(missing_ok=True)
            _make(folder, program)
            stamp.write_text(state, encoding="utf-8")
    return Environment(folder)


def _make(folder: Path, program: str) -> None:
    build_wheels(folder / "wheels", program)
    if not (folder / "bin" / "python").is_file():
        made = [program, "venv", *NO_INDEX, "--allow-existing", "--python", sys.executable, str(folder)]
        subprocess.run(made, check=True)
    python = ["--python", str(folder / "bin" / "python")]
    # The third-party packages are those of the environment that runs the tests. A folder that a .pth file names has no
    # .pth files of its own, so that its editable installs of this checkout are not installed here.
    own = _site_packages(folder)
    (own / "third_party.pth").write_text("\n".join(site.getsitepackages()), encoding="utf-8")
    wheels = [str(path) for path in sorted((folder / "wheels").glob("*.whl"))]
    install = [program, "pip", "install", *NO_INDEX, "--no-index", "--no-deps", "--reinstall", *python, *wheels]
    subprocess.run(install, check=True)


def _site_packages(folder: Path) -> Path:
    return Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))


def _state() -> str:
    """Hash of all that the environment is made from."""
    whole = hashlib.sha256("\n".join([sys.executable, *site.getsitepackages()]).encode())
    parts = (path for path in tracked() if path.relative_to(ROOT).parts[0] in BUILT_FROM)
    for path in sorted(parts):
        whole.update(f"{path.relative_to(ROOT)} {path.stat().st_mtime_ns}\n".encode())
    return whole.hexdigest()
