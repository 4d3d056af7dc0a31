"""Results go to formats and services of others by one command."""

import json
from pathlib import Path

import pytest

from fedleak.commands import program
from fedleak.commands.export import make_exporter
from fedleak.core.errors import InputError
from fedleak.reports.exporters import NAMES, exporter_named
from fedleak.reports.exporters.sarif import Sarif
from tests.reports.toys import run


def test_an_exporter_is_named_and_takes_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run().write(tmp_path)
    file = tmp_path / "here" / "x.sarif"
    words = ("export", str(tmp_path), "--to", "sarif", "--to.file", str(file), "--to.results=alerts")
    assert program.main(words) == 0
    assert capsys.readouterr().out == f"sarif: {file}\n"
    assert json.loads(file.read_text(encoding="utf-8"))["version"] == "2.1.0"


@pytest.mark.inventory
@pytest.mark.parametrize("name", NAMES)
def test_every_exporter_is_made_without_options(name: str) -> None:
    exporter = make_exporter(name, {})
    assert exporter.name == name
    assert type(exporter).__doc__


def test_an_exporter_is_named_by_its_class_path() -> None:
    made = make_exporter("fedleak.reports.exporters.sarif.Sarif", {"results": "alerts"})
    assert made == Sarif(results="alerts")


@pytest.mark.parametrize(
    ("name", "options", "word"),
    [
        ("serif", {}, "sarif"),
        ("sarif", {"fill": "x"}, "fill"),
        ("sarif", {"results": "some"}, "alerts"),
        ("no_package.Exporter", {}, "no_package"),
        ("fedleak.evaluation.run.Run", {}, "Exporter"),
    ],
)
def test_what_is_no_exporter_or_option_is_refused(name: str, options: dict[str, str], word: str) -> None:
    with pytest.raises(InputError, match=word):
        make_exporter(name, options)


def test_a_folder_without_results_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["export", str(tmp_path), "--to", "sarif"]) == 2
    assert "results.json" in capsys.readouterr().err
    assert program.main(["export", str(tmp_path)]) == 2
    assert "--to" in capsys.readouterr().err


def test_an_exporter_that_is_not_named_as_its_file_is_refused() -> None:
    with pytest.raises(InputError, match="Name the file"):
        exporter_named("exporter")  # the file of the base class
