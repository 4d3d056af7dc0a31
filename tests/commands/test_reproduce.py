"""Which table `reproduce` takes: by name, by path, and by the path of an earlier version."""

from pathlib import Path

import pytest
import yaml

from fedleak.commands import program
from fedleak.core.places import table_files
from fedleak.tables.table_file import read_content


@pytest.mark.parametrize(
    ("given", "is_noted"),
    [("raifle_algorithm2", False), ("configs/paper/raifle_algorithm2.yaml", True)],
)
def test_a_table_is_found_by_its_name_and_by_its_old_path(
    given: str, is_noted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert program.main(["reproduce", given, "--dry-run"]) == 0
    said = capsys.readouterr()
    assert "recommendation" in said.out
    assert (
        "configs/paper/raifle_algorithm2.yaml has moved: its name, raifle_algorithm2, is enough" in said.err
    ) is is_noted


def test_a_table_of_one_s_own_may_extend_one_by_its_old_path(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(yaml.safe_dump({"over": "/srv/configs/paper/raifle_table13.yaml", "seeds": 2}), encoding="utf-8")
    assert read_content(own) == {**read_content(table_files()["raifle_table13"]), "seeds": 2}
