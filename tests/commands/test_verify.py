"""The exit status says whether a bundle is as it was written."""

from pathlib import Path

import pytest

from fedleak.commands import program
from tests.reports.toys import run


def test_a_bundle_a_changed_one_and_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run().write(tmp_path)
    assert program.main(["export", str(tmp_path), "--to", "bundle"]) == 0
    archive = tmp_path / "audit.zip"
    capsys.readouterr()
    assert program.main(["verify", str(archive)]) == 0
    assert capsys.readouterr().out == (
        "bundle ok: 3 files of e, not signed; date unknown; commit unknown; recording unknown; made by: c\n"
    )
    (tmp_path / "allowed").write_text("")
    assert program.main(["verify", str(archive), "--allowed-signers", str(tmp_path / "allowed")]) == 3
    archive.write_bytes(archive.read_bytes().replace(b"GATE", b"gate"))
    assert program.main(["verify", str(archive)]) == 3
    said = capsys.readouterr()
    assert said.out.count("BUNDLE FAILED") == said.out.count("\n") == 2
    assert said.err == ""
    assert program.main(["verify", str(tmp_path / "nothing")]) == 2
    assert program.main(["verify", str(tmp_path)]) == 2
