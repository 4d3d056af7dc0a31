"""A bundle holds what can be passed on, the same bytes for the same results."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from fedleak.commands import program
from fedleak.core.errors import InputError
from fedleak.core.io.files import sha256_of
from fedleak.evaluation.stored_run import read_results
from fedleak.recordings.recording import Recording
from fedleak.reports.evidence_bundle import FILES, MANIFEST, BundleError, archive, verified
from fedleak.reports.exporters.bundle import Bundle
from fedleak_recorder.format import read_manifest
from tests.places import FILLED_SYSTEM
from tests.reports.bundle_toys import with_hashes
from tests.reports.toys import run
from tests.toys import train


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An audit with a gate and a statement, whose results name pseudonyms."""
    folder = tmp_path_factory.mktemp("audit")
    train(folder, rounds=2, users=12, items=60)
    options = ("--gate", "auc=0.6", "--statement", str(FILLED_SYSTEM), "--persons")
    assert program.main(["audit", str(folder / "deltas"), *options]) == 3
    return folder


def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    made = run()
    made.write(tmp_path)
    first = Path(Bundle(str(tmp_path / "one.zip")).export(made, tmp_path)).read_bytes()
    again = Path(Bundle(str(tmp_path / "two.zip")).export(read_results(tmp_path), tmp_path)).read_bytes()
    assert first == again


def test_tables_of_attacks_stay_in_the_folder(tmp_path: Path) -> None:
    made = run(command="python /somewhere/attack.py audit /somewhere/else/deltas")
    made.write(tmp_path)
    with zipfile.ZipFile(Bundle().export(made, tmp_path)) as file:
        manifest, results = json.loads(file.read(MANIFEST)), json.loads(file.read("results.json"))
    assert made.details
    assert "details" not in results
    assert manifest["command"] == results["command"] == "python attack.py audit ..."
    assert manifest["results_sha256"] == sha256_of(tmp_path / "results.json")


@pytest.mark.integration
@pytest.mark.usefixtures("without_figures")
def test_no_client_is_in_a_bundle(audited: Path) -> None:
    path = Path(Bundle().export(read_results(audited), audited))
    with zipfile.ZipFile(path) as file:
        contents = {name: file.read(name) for name in file.namelist()}
    assert contents.keys() == {MANIFEST, *FILES}
    whole = b"".join(contents.values()).decode()
    recording = Recording(audited / "deltas")
    people = {str(name) for name in recording.pseudonyms()}
    scores = (audited / "scores.csv").read_text()
    assert any(name in scores for name in people)  # the file with them is not in the bundle
    assert not [name for name in people if name in whole]
    assert not [name for name in contents if name.endswith((".csv", ".safetensors", ".png", ".pkl"))]
    assert "data:image" not in whole
    manifest = json.loads(contents[MANIFEST])
    assert manifest["recording"] == recording.sha256()
    assert manifest["data"]["sha256"] == read_manifest(audited / "deltas").data["sha256"]


@pytest.mark.integration
@pytest.mark.usefixtures("without_figures")
def test_a_bundle_of_an_audit_is_verified_by_the_command(audited: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = audited / "audit.zip"
    assert program.main(["export", str(audited), "--to", "bundle"]) == 0
    assert program.main(["verify", str(archive)]) == 0
    assert "bundle ok: 5 files" in capsys.readouterr().out
    archive.write_bytes(archive.read_bytes()[:-1])
    assert program.main(["verify", str(archive)]) == 3
    said = capsys.readouterr().out
    assert said.startswith("BUNDLE FAILED: ")
    assert said.count("\n") == 1


@pytest.mark.integration
@pytest.mark.usefixtures("without_figures")
def test_a_statement_that_says_something_else_is_not_verified(audited: Path) -> None:
    path = Path(Bundle(str(audited / "changed.zip")).export(read_results(audited), audited))
    with zipfile.ZipFile(path) as file:
        right = {name: file.read(name) for name in file.namelist()}
    statement = json.loads(right["statement.json"])
    assert all(one["worst_people"] == [] == one["most_exposed"] for one in statement["measured"])
    assert statement["provenance"]["command"] == json.loads(right["results.json"])["command"]
    own = statement["provenance"]
    changed = {**statement, "provenance": {**own, "recording_sha256": "0" * 64}}
    others = {
        "page": {**right, "statement.html": right["statement.html"].replace(b"</body>", b"nothing leaks</body>")},
        "recording": {**right, "statement.json": json.dumps(changed).encode()},
        "form": {**right, "statement.json": json.dumps(statement).encode()},
    }
    for name, entries in others.items():
        path.write_bytes(archive(with_hashes(entries)))
        with pytest.raises(BundleError, match=r"statement\.(html|json) is"):
            pytest.fail(f"{name}: {verified(path)}")


@pytest.mark.integration
@pytest.mark.usefixtures("without_figures")
def test_a_statement_of_other_results_is_not_bundled(audited: Path) -> None:
    made: Any = read_results(audited)
    results = audited / "results.json"
    kept = results.read_bytes()
    results.write_bytes(kept + b"\n")
    with pytest.raises(InputError, match="other results"):
        Bundle().export(made, audited)
    results.unlink()
    with pytest.raises(InputError, match=r"results\.json, whose hash a bundle holds"):
        Bundle().export(made, audited)
    results.write_bytes(kept)
