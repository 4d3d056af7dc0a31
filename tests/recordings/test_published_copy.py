"""A published copy holds what the server saw and names nobody; it is made whole, or not at all."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from fedleak.commands import program
from fedleak.commands.convert import convert_dump
from fedleak.core.errors import InputError
from fedleak.recordings import published_copy
from fedleak.recordings.published_copy import publish_copy
from fedleak.recordings.recording import Recording
from fedleak_recorder.format import AUXILIARY, MANIFEST
from tests.foreign_toys import changed_manifest, write_dump

pytestmark = pytest.mark.usefixtures("without_figures")


def recorded(folder: Path, **changed: object) -> Path:
    """A recording of one round, of the toy of another system."""
    manifest = write_dump(folder / "dump")
    convert_dump(changed_manifest(manifest, **changed) if changed else manifest, folder / "whole", progress=False)
    return folder / "whole"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.integration
def test_the_copy_is_audited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = recorded(tmp_path)
    (source / "notes.txt").write_text("client 3 is Jane Doe")
    (source / "last.ckpt").write_bytes(b"secret key")
    assert program.main(["publish", str(source), "--out", str(tmp_path / "copy")]) == 0
    said = capsys.readouterr().out
    for part in ("1 rounds copied", "truth/", "other files: last.ckpt, notes.txt", "the copy still allows:"):
        assert part in said
    files = contents(tmp_path / "copy")
    assert files.keys() == {MANIFEST, AUXILIARY, "journal.jsonl", "rounds/000003-0000.safetensors"}
    assert all(files[name] == contents(source)[name] for name in files if name != "journal.jsonl")
    assert b"truth" not in files["journal.jsonl"]
    assert program.main(["audit", str(tmp_path / "copy"), "--out", str(tmp_path / "audit")]) == 0
    assert (tmp_path / "audit/report.html").exists()


@pytest.mark.integration
def test_a_recording_whose_folder_truth_was_left_out_is_audited_and_a_broken_one_is_not(tmp_path: Path) -> None:
    source = recorded(tmp_path)
    kept = tmp_path / "truth"
    shutil.move(source / "truth", kept)
    assert program.main(["audit", str(source), "--out", str(tmp_path / "audit")]) == 0
    (source / "truth").mkdir()
    assert program.main(["audit", str(source), "--out", str(tmp_path / "audit")]) == 2
    assert program.main(["publish", str(source), "--out", str(tmp_path / "copy")]) == 2
    assert not (tmp_path / "copy").exists()


def test_what_is_of_people_is_left_out_of_the_auxiliary_data(tmp_path: Path) -> None:
    source = recorded(tmp_path)
    held = load_file(source / AUXILIARY)
    pseudonyms = torch.tensor(Recording(source).pseudonyms(3)[:2])
    people = {"attribute_pseudonyms": pseudonyms, "attribute/gender": torch.tensor([0, 1])}
    save_file({**held, **people}, source / AUXILIARY)
    manifest = json.loads((source / MANIFEST).read_text())
    manifest["auxiliary"] = hashlib.sha256((source / AUXILIARY).read_bytes()).hexdigest()
    (source / MANIFEST).write_text(json.dumps(manifest))
    made = publish_copy(source, tmp_path / "copy")
    assert any("attribute/gender, attribute_pseudonyms" in one for one in made.left_out)
    assert load_file(tmp_path / "copy" / AUXILIARY).keys() == held.keys()
    assert Recording(tmp_path / "copy").auxiliary().keys() == Recording(source).auxiliary().keys() - people.keys()


def test_paths_and_addresses_of_the_manifest_are_left_out(tmp_path: Path) -> None:
    source = recorded(tmp_path)
    manifest = json.loads((source / MANIFEST).read_text())
    config = {
        "system": "my system 2.1",
        "folder": "/srv/jane.doe/data",
        "nested": [{"url": "https://jane:pw@host/x"}],
    }
    manifest["config"] = {**manifest["config"], **config, "/srv/jane.doe": 1}
    (source / MANIFEST).write_text(json.dumps(manifest))
    made = publish_copy(source, tmp_path / "copy")
    text = (tmp_path / "copy" / MANIFEST).read_text()
    assert "jane" not in text
    assert "my system 2.1" in text
    assert any("config.folder" in one and "config.nested" in one for one in made.left_out)
    assert Recording(tmp_path / "copy").manifest.learner == Recording(source).manifest.learner


@pytest.mark.parametrize("place", ["journal.jsonl", "rounds/000003-0000.safetensors", AUXILIARY, "rounds", "."])
def test_no_link_is_followed(tmp_path: Path, place: str) -> None:
    source = recorded(tmp_path)
    if place == ".":
        linked = tmp_path / "link"
        linked.symlink_to(source)
        source = linked
    else:
        shutil.move(source / place, tmp_path / "elsewhere")
        (source / place).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError):
        publish_copy(source, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert not [*tmp_path.glob(".copy*")]


def test_a_folder_that_holds_files_is_not_touched(tmp_path: Path) -> None:
    source = recorded(tmp_path)
    (tmp_path / "empty").mkdir()
    publish_copy(source, tmp_path / "empty")
    before = contents(tmp_path / "empty")
    for taken in (tmp_path / "empty", source, source / "inside", tmp_path / "file", tmp_path / "dangling"):
        if taken.name == "file":
            taken.write_text("x")
        if taken.name == "dangling":
            taken.symlink_to(tmp_path / "nowhere")
        with pytest.raises(InputError):
            publish_copy(source, taken)
    assert contents(tmp_path / "empty") == before
    assert not (tmp_path / "nowhere").exists()


def test_texts_in_a_file_of_tensors_are_refused(tmp_path: Path) -> None:
    source = recorded(tmp_path)
    path = source / "rounds/000003-0000.safetensors"
    save_file(load_file(path), path, metadata={"by": "jane.doe"})
    content = path.read_bytes()
    journal = source / "journal.jsonl"
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    for line in lines:
        if line.get("file") == "rounds/000003-0000.safetensors":
            line |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(InputError, match="without texts"):
        publish_copy(source, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_copy_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = recorded(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(published_copy, "write_shard", full)
    with pytest.raises(OSError, match="space"):
        publish_copy(source, tmp_path / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dump", "whole"]


@pytest.mark.integration
def test_a_killed_copy_has_no_name_and_is_made_again(tmp_path: Path) -> None:
    source = recorded(tmp_path)
    code = (
        "import os, signal, sys; from pathlib import Path; from fedleak.recordings import published_copy;"
        "published_copy.RecordingFolder.declare = lambda *_: os.kill(os.getpid(), signal.SIGKILL);"
        "published_copy.publish_copy(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    words = [sys.executable, "-c", code, str(source), str(tmp_path / "copy")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run(words, env=environment, check=False).returncode == -signal.SIGKILL
    assert not (tmp_path / "copy").exists()
    publish_copy(source, tmp_path / "copy")
    assert Recording(tmp_path / "copy").closed
