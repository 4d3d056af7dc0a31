"""Checks of the received model that another package offers are found and run."""

from pathlib import Path
from typing import Any

import pytest

from fedleak_guard.check import NotMadeError, known_checks
from fedleak_guard.checks import received_model
from fedleak_guard.checks.received_model import ReceivedModel
from fedleak_guard.policy import read_policy
from tests.guard_toys import message, model, write_policy

SOURCE = """
class LargestNumber:
    name = "largest-number"
    threshold = {threshold}

    def statistic(self, received):
        return float(received["weight"].abs().max())
"""


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes a package with one check, and names it instead of that of the main package."""

    def offer(threshold: float) -> None:
        name = f"checks_of_{str(threshold).replace('.', '_')}"
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
        (tmp_path / name / "largest.py").write_text(SOURCE.format(threshold=threshold))
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(received_model, "_FOLDER", name)

    return offer


@pytest.mark.parametrize(("threshold", "found"), [(100.0, False), (0.5, True)])
def test_a_check_is_found_and_compared_with_its_threshold(
    tmp_path: Path, offered: Any, threshold: float, found: bool
) -> None:
    offered(threshold)
    measured = ReceivedModel().measure(message(), read_policy(write_policy(tmp_path)), first=False)
    assert measured is not None
    assert (measured.found, measured.value) == (found, float(found))
    assert not found or f"largest-number is {abs(model()['weight']).max():.4g}" in measured.sentence


def test_without_a_package_the_check_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received_model, "_FOLDER", "no_such_package.model_checks")
    with pytest.raises(NotMadeError, match="not installed"):
        ReceivedModel().measure(message(), read_policy(write_policy(tmp_path)), first=False)


def test_checks_without_a_threshold_are_not_said_to_have_found_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotMadeError, match="threshold"):
        ReceivedModel().measure(message(), read_policy(write_policy(tmp_path)), first=False)


def test_every_check_is_found_by_its_file() -> None:
    names = {f"fedleak_guard.checks.{name.replace('-', '_')}" for name in known_checks()}
    assert {kind.__module__ for kind in known_checks().values()} == names
