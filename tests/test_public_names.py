"""``from fedleak import NAME``: which names there are, what each is, and an example of each that runs."""

import doctest
import gc
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fedleak
from fedleak.core import metric_table
from fedleak.core.exports import public_names
from tests.places import ROOT

pytestmark = pytest.mark.inventory

AUDIT = ("AuditPlan", "AuditResult", "DeltaRecorder", "Recording", "audit", "quiet_trainer", "run_audit", "show")
"""What a training is recorded with, and a recording audited."""
BASES = (
    *("AfterStep", "Attack", "Check", "Defense", "Deviation", "Estimate", "Exporter"),
    *("FederatedDataModule", "FederatedModule"),
    *("ModelCheck", "NetworkLearner", "RecordingStep", "Step"),
)
"""What an addition is a subclass of."""
PARTS = (
    *("Candidates", "Choices", "History", "InputError", "LocalTraining", "Metric", "Quantities", "Reconstruction"),
    "RoundView",
    *("Scores", "ThreatModel", "Update", "ViewError", "add_metric"),
)
"""What additions get, return and raise."""
NAMES = (*AUDIT, *BASES, *PARTS)
FAMILIES = {
    "attributes": False,
    "composition": False,
    "declared_privacy": False,
    "identifiability": False,
    "images": False,
    "interactions": False,
    "linkability": False,
    "matching": True,
    "membership": False,
    "ranking": False,
    "re_identification": True,
    "recommendation": True,
    "reconstruction": True,
    "record_membership": True,
    "source": False,
    "sums_over_rounds": False,
    "trees": True,
    "words": False,
}
"""Families of attacks, and whether examples of one of them train with Lightning or load the transformers library."""
TRAINING = ("AuditResult", "DeltaRecorder", "audit", "quiet_trainer", "show")
"""Names whose example trains."""


@pytest.fixture
def _nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Metrics and files of an example end with it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    metrics, judged = dict(metric_table.METRICS), dict(metric_table.JUDGED_BY)
    yield
    metric_table.METRICS.clear()
    metric_table.METRICS.update(metrics)
    metric_table.JUDGED_BY.clear()
    metric_table.JUDGED_BY.update(judged)


@pytest.fixture(scope="module", autouse=True)
def _no_class_stays() -> Iterator[None]:
    """Other tests look for all subclasses of a base."""
    yield
    gc.collect()


def example_of(name: str, thing: Any) -> doctest.DocTest:
    """The example in the docstring of a name, which has no other names than those it imports."""
    return doctest.DocTestParser().get_doctest(thing.__doc__, {"__name__": "example"}, name, None, None)


def test_these_are_the_public_names() -> None:
    assert sorted(public_names(fedleak)) == sorted([*NAMES, "__version__"])
    assert set(public_names(fedleak)) <= set(dir(fedleak))


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_opens_with_a_definition(name: str) -> None:
    first = (getattr(fedleak, name).__doc__ or "").strip().partition("\n")[0]
    assert re.fullmatch(r"[A-Z].{20,}[.:]", first), first


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.integration] * (name in TRAINING)) for name in NAMES]
)
@pytest.mark.usefixtures("_nothing_stays")
def test_the_example_of_a_public_name_gives_what_it_says(name: str) -> None:
    check_example(name, getattr(fedleak, name))


def check_example(name: str, thing: Any) -> None:
    """The docstring of a name has an example that gives what it says."""
    example = example_of(name, thing)
    assert any(part.want for part in example.examples), f"{name}: an example with what it prints"
    said: list[str] = []
    failed, tried = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example, out=said.append)
    assert tried
    assert not failed, "".join(said)


def test_every_family_of_attacks_has_its_examples_tested() -> None:
    families = {path.parent.name for path in (ROOT / "attacks").glob("*/__init__.py")}
    assert {*FAMILIES} == families


@pytest.mark.parametrize(
    "family", [pytest.param(family, marks=[pytest.mark.integration] * slow) for family, slow in FAMILIES.items()]
)
@pytest.mark.usefixtures("_nothing_stays")
def test_the_examples_of_a_family_of_attacks_give_what_they_say(family: str) -> None:
    package = importlib.import_module(f"fedleak.attacks.{family}")
    for name in public_names(package):
        check_example(name, getattr(package, name))


def test_a_wrong_example_is_found() -> None:
    def wrong() -> None:
        """One and one.

        >>> 1 + 1
        3
        """

    assert doctest.DocTestRunner().run(example_of("wrong", wrong), out=lambda _: None).failed == 1


def names_from_elsewhere(text: str) -> list[str]:
    """Imports of a page or a tutorial that take a public name from a module below ``fedleak``."""
    imports = re.findall(r"^from (fedleak\.[\w.]+) import ([\w, ]+)", text, re.MULTILINE)
    return [f"{module}.{name}" for module, names in imports for name in re.findall(r"\w+", names) if name in NAMES]


def test_examples_import_public_names_from_the_package() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    tutorials = list((ROOT / "docs" / "tutorials").glob("*.py"))
    assert len(pages) > 40
    assert len(tutorials) > 5
    found = {path.name: names_from_elsewhere(path.read_text(encoding="utf-8")) for path in [*pages, *tutorials]}
    assert {name: names for name, names in found.items() if names} == {}


def test_a_public_name_from_elsewhere_is_found() -> None:
    assert names_from_elsewhere("from fedleak.core.attack import Attack") == ["fedleak.core.attack.Attack"]
    assert names_from_elsewhere("from fedleak import Attack\nfrom fedleak.datamodules import Digits") == []


@pytest.mark.integration
def test_the_names_are_listed_without_torch_and_numpy() -> None:
    code = "import sys, fedleak; dir(fedleak); fedleak.__version__; print({'torch', 'numpy'} & {*sys.modules})"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
