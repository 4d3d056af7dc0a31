"""What the project promises about its own files."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import distributions
from pathlib import Path
from site import getsitepackages

import pytest
import yaml
from packaging.requirements import Requirement

from fedleak.client.packaged_weights import PACKAGED
from tests.places import ROOT, copy_checkout, tracked
from tests.slowest import FEWEST, Spent, too_slow

pytestmark = pytest.mark.inventory

PLACES = re.compile(
    r"pypi|pythonhosted|(?<!emit)-index-url|find-links|(?<![\w.~/])/(?:home|root|Users|mnt|work)/\w", re.IGNORECASE
)
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "submitit"}
HARMLESS = {
    "joblib": frozenset({"Parallel", "delayed", "parallel_config", "register_parallel_backend"}),
    "joblib.parallel": frozenset({"BACKENDS", "EXTERNAL_BACKENDS"}),
}
"""What opens no file: processes of our own, which get what we made, and names of backends."""
OF_ITS_OWN_RUN = {
    "fedleak/evaluation/engines/submitit.py": ["submitit"],
    "fedleak/evaluation/engines/submission.py": ["submitit.core.utils"],
    "fedleak/evaluation/engines/submitted_job.py": ["submitit.helpers"],
}
"""Files that unpickle what the same run has written, in a folder that nobody else may write to."""
FORBIDDEN_CALLS = {"torch.load", "pd.read_pickle", "pandas.read_pickle"}
"""Unless they are told that the file holds values only."""
UNSAFE_WORDS = re.compile("|".join(sorted(FORBIDDEN_MODULES)) + r"|pickle|\.\s*load\b")
"""Without one of these a source has none of the above."""


def sources() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".py"]


def places_in(text: str) -> list[str]:
    return [line for line in text.splitlines() if PLACES.search(line)]


def unsafe_in(source: str) -> list[str]:
    """Imports and calls in `source` that could run a stranger's code while they read a file."""
    if not UNSAFE_WORDS.search(source):  # a tree takes a hundred times as long as a search
        return []
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in FORBIDDEN_MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FORBIDDEN_MODULES:
            harmless = HARMLESS.get(node.module or "", frozenset())
            found += [str(node.module)] if {alias.name for alias in node.names} - harmless else []
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in FORBIDDEN_CALLS:
            plain = any(word.arg == "weights_only" and ast.unparse(word.value) == "True" for word in node.keywords)
            found += [] if plain else [ast.unparse(node.func)]
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle" and getattr(node.value, "value", True):
            found.append("allow_pickle")
    return found


def test_no_registry_address_and_no_path_of_a_machine() -> None:
    offenders = {}
    for path in tracked():
        if path != Path(__file__).resolve():
            text = path.read_bytes().decode("utf-8", errors="replace")
            offenders[str(path.relative_to(ROOT))] = places_in(text)
    assert {name: lines for name, lines in offenders.items() if lines} == {}


# Joined here, so that this file itself names no place.
INDEX = "hosted".join(["https://files.python", ".org/a"])


@pytest.mark.parametrize("text", ["--index-url x", INDEX, "root: /home/me/data"])
def test_the_search_for_places_finds_them(text: str) -> None:
    assert places_in(text) == [text]


def test_no_pickle() -> None:
    offenders = {str(path.relative_to(ROOT)): unsafe_in(path.read_text(encoding="utf-8")) for path in sources()}
    assert {name: found for name, found in offenders.items() if found} == OF_ITS_OWN_RUN


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import submitit",
        "from joblib import load",
        "torch.load(p)",
        "torch.load(p, weights_only=False)",
        "np.load(p, allow_pickle=True)",
    ],
)
def test_the_search_for_pickle_finds_it(source: str) -> None:
    assert len(unsafe_in(source)) == 1


LOCKS: dict[str, list[str]] = {
    "fedleak.lock": ["transformers", "weights"],
    "flower.lock": ["flower", "transformers"],
    "nvflare.lock": ["nvflare", "transformers"],
    "docs.lock": ["docs", "transformers", "weights"],
}
LOCKS["exporters.lock"] = ["otel", "mlflow", "exporters"]
"""Every lock and the extras and groups that it holds."""
BETAS_ALONE = re.compile(r"opentelemetry-(semantic-conventions|exporter-(http-transport|otlp-common))==")
"""Packages that have no other versions."""


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_is_pinned_by_hash_and_holds_no_pre_release(lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text(encoding="utf-8")
    entries = re.split(r"\n(?=\S)", text.strip())
    assert len(entries) > 50
    for entry in entries:
        assert re.match(r"[a-z0-9][a-z0-9._-]*==\S+", entry), entry[:80]
        assert "--hash=sha256:" in entry, entry[:80]
        pre_release = re.match(r"\S+==[0-9.]*[0-9](a|b|rc|\.dev)[0-9]", entry)
        assert not pre_release or BETAS_ALONE.match(entry), entry[:80]


@pytest.mark.parametrize(("lock", "extras"), LOCKS.items())
def test_lock_holds_every_dependency(lock: str, extras: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = project["project"]["dependencies"] + project["dependency-groups"]["dev"]
    further = project["project"]["optional-dependencies"] | project["dependency-groups"]
    wanted += [name for extra in extras for name in further[extra]]
    text = (ROOT / "requirements" / lock).read_text(encoding="utf-8")
    locked = set(re.findall(r"^([a-z0-9._-]+)==", text, re.MULTILINE))
    in_checkout = project["tool"]["uv"]["sources"].keys()  # make installs these without a lock
    names = {re.split(r"[^a-z0-9.-]", name.lower())[0].replace("_", "-") for name in wanted}
    assert names - in_checkout <= locked


def test_packages_that_are_read_as_files_are_locked_without_what_they_require() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    text = (ROOT / "requirements" / "weights.lock").read_text(encoding="utf-8")
    entries = re.findall(r"^(\S+==\S+) .*\n +--hash=sha256:", text, re.MULTILINE)
    assert sorted(entries) == sorted(project["dependency-groups"]["networks"])
    for network in PACKAGED.values():
        assert network.package in entries


def test_what_lies_in_the_checkout_is_in_no_lock_and_has_the_version_that_is_required() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    sources = project["tool"]["uv"]["sources"]
    extras = project["project"]["optional-dependencies"].values()
    required = map(Requirement, [*project["project"]["dependencies"], *(name for extra in extras for name in extra)])
    own = {one.name: one.specifier for one in required if one.name in sources}
    assert own.keys() == sources.keys() == {"fedleak-guard", "fedleak-recorder"}
    for name, source in sources.items():
        found = tomllib.loads((ROOT / source["path"] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert found["name"] == name
        assert own[name].contains(found["version"])
        assert not any(f"{name}==" in (ROOT / "requirements" / lock).read_text(encoding="utf-8") for lock in LOCKS)


EXTRA = re.compile(r"(?:\bfedleak|'\.)\[([\w,-]+)\]")


def test_every_extra_that_a_text_names_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    texts = [path for path in tracked() if path.suffix in {".md", ".py", ".yaml"} and path != Path(__file__).resolve()]
    lists = [one for path in texts for one in EXTRA.findall(path.read_text(encoding="utf-8"))]
    named = {extra for one in lists for extra in one.split(",")}
    extras = project["project"]["optional-dependencies"].keys()
    assert {"images", "mlflow", "otel", "transformers"} <= named <= extras
    page = (ROOT / "docs" / "start" / "install.md").read_text(encoding="utf-8").partition("## Extras")[2]
    first_cells = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(first_cells))) == extras


def test_every_dependency_has_a_bound_and_a_reason() -> None:
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    dependencies = [line for line in lines if re.match(r'\s+"[a-z0-9-]+(\[\w+\])?[<>=~]', line)]
    names = [line for line in lines if re.match(r'\s+"[a-z0-9-]+",?\s*(#.*)?$', line)]
    project = tomllib.loads("\n".join(lines))
    extras = project["project"]["optional-dependencies"].values()
    groups = project["dependency-groups"].values()
    count = len(project["project"]["dependencies"]) + sum(len(names) for names in [*extras, *groups])
    assert len(dependencies) == count, f"without a bound: {names}"
    assert [line for line in dependencies if not re.search(r"#\s*\S.{10,}", line)] == []


def test_no_download_addresses_are_committed() -> None:
    assert ROOT / "uv.lock" not in tracked()


def test_every_yaml_file_is_yaml() -> None:
    files = [path for path in tracked() if path.suffix in {".yaml", ".yml", ".cff"}]
    assert all(isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict) for path in files)


@pytest.mark.integration
def test_an_editable_install_has_the_packages_and_both_commands(tmp_path: Path) -> None:
    """Built from a copy, without a network, with the setuptools of the environment.

    Nothing else of the checkout is on the path then: its folders, such as tests, may have the names of a user's.
    """
    copy, site = tmp_path / "copy", tmp_path / "site"
    copy_checkout(copy)
    site.mkdir()
    build = "from setuptools import build_meta; print(build_meta.build_editable('..'))"
    done = subprocess.run([sys.executable, "-c", build], cwd=copy, capture_output=True, text=True, check=True)
    with zipfile.ZipFile(tmp_path / done.stdout.splitlines()[-1]) as wheel:
        wheel.extractall(site)
    assert not any(str(copy) in path.read_text(encoding="utf-8") for path in site.glob("*.pth"))
    (own,) = distributions(path=[str(site)])
    names = {point.name for point in own.entry_points.select(group="console_scripts")}
    assert names == {"fedleak", "fedleak-train"}
    # Without what is installed as editable into the environment of this test.
    others = [*getsitepackages(), str(ROOT / "recorder")]
    use = f"import site, sys; site.addsitedir('site'); sys.path += {others}"
    use += "; import fedleak.attacks.recommendation"
    use += "; from fedleak.commands import program, train; print(program.command, train.command, program.__file__)"
    command = [sys.executable, "-I", "-S", "-c", use]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith(str(copy / "fedleak/commands/program.py"))


def test_a_small_test_that_takes_too_large_a_share_of_a_long_run_is_named() -> None:
    tests = [Spent(f"test_{number}", 95 / FEWEST, False) for number in range(FEWEST)]
    trains, slow = Spent("test_trains", 50, True), Spent("test_slow", 5.1, False)
    assert too_slow([*tests, trains, slow]) == ["test_slow"]
    assert too_slow([*tests, trains, slow._replace(seconds=4.9)]) == []
    assert too_slow([*tests[:100], slow]) == []
