"""Messages in files, damaged and hostile ones too."""

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from fedleak_recorder import Recorder
from fedleak_recorder.errors import InputError
from fedleak_recorder.lint.linting import linted
from fedleak_recorder.lint.reading import is_recording, read_message, recorded_messages
from tests.lint_toys import PICKLED, network, table, xgboost_json

DRAWS = np.random.default_rng(0)
ROWS = table(DRAWS, 40)


def kinds_in(path: Path) -> set[str]:
    return {finding.kind for finding in linted(read_message(path))}


def files_of(folder: Path) -> dict[str, Path]:
    """A file of each format, by its name."""
    np.savez(folder / "rows.npz", weight=ROWS, **network(DRAWS))  # type: ignore[arg-type]
    np.save(folder / "rows.npy", np.asfortranarray(ROWS))
    save_file({"weight": ROWS.astype("f"), "short": ROWS.astype(np.float16)}, folder / "rows.safetensors")
    (folder / "rows.json").write_text(json.dumps({"weight": ROWS.tolist(), "num-examples": 40}))
    lines = [",".join(map(str, row)) for row in ROWS.tolist()]
    (folder / "rows.csv").write_text("\n".join(["age,sex,glucose,bmi,hypertension,temperature", *lines]))
    (folder / "model.json").write_bytes(xgboost_json(DRAWS, 301))
    (folder / "model.ubj").write_bytes(b"{L\0\0\0\0\0\0\0\x07learner{")
    (folder / "notes.txt").write_text("The patient was seen on Monday with fever and cough and was sent home.")
    (folder / "model.pkl").write_bytes(PICKLED + b"\x94s.")
    with zipfile.ZipFile(folder / "model.pt", "w") as archive:
        archive.writestr("data.pkl", b"x")
    (folder / "all.tar.gz").write_bytes(b"\x1f\x8b\x08rest")
    (folder / "image").write_bytes(b"\x89PNG\r\n\x1a\n" + DRAWS.bytes(100))
    return {path.name: path for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("rows.npz", {"raw-rows"}),
        ("rows.npy", {"raw-rows"}),
        ("rows.safetensors", {"raw-rows"}),
        ("rows.json", {"raw-rows"}),
        ("rows.csv", {"raw-rows"}),
        ("model.json", {"trees", "class-counts"}),
        ("model.ubj", {"trees"}),
        ("notes.txt", {"text"}),
        ("model.pkl", {"not-opened"}),
        ("model.pt", {"not-opened"}),
        ("all.tar.gz", {"not-opened"}),
        ("image", {"text"}),
    ],
)
def test_what_is_planted_in_a_file_is_named(name: str, kinds: set[str], tmp_path: Path) -> None:
    assert kinds_in(files_of(tmp_path)[name]) == kinds


def test_arrays_are_those_that_were_written(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    assert np.array_equal(read_message(files["rows.npy"]).arrays["rows"], ROWS)
    assert np.array_equal(read_message(files["rows.npz"]).arrays["weight"], ROWS)
    assert np.array_equal(read_message(files["rows.safetensors"]).arrays["weight"], ROWS.astype("f"))


def test_an_update_has_no_findings(tmp_path: Path) -> None:
    np.savez(tmp_path / "update.npz", **network(DRAWS))  # type: ignore[arg-type]
    assert kinds_in(tmp_path / "update.npz") == set()


def test_texts_in_a_table_are_columns(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text(
        "name,age\n" + "\n".join(f"person {row},{20 + row * row % 31}" for row in range(30))
    )
    assert kinds_in(tmp_path / "people.csv") == {"text", "raw-rows"}


def test_objects_of_numpy_are_not_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "objects.npy"
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + PICKLED + b"\x94s.")
    message = read_message(path)
    assert message.arrays == {}
    assert list(message.contents) == ["objects"]


def test_a_small_archive_of_large_arrays_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(3):
            archive.writestr(f"{number}.npy", bytes(2**27))
    (tmp_path / "bomb.npz").write_bytes(buffer.getvalue())
    with pytest.raises(InputError, match="bytes of arrays"):
        read_message(tmp_path / "bomb.npz")


def test_missing_files_and_folders_are_input_errors(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.npz", tmp_path):
        with pytest.raises(InputError):
            read_message(path)


@pytest.mark.filterwarnings("ignore:.*holds more than an update")
def test_the_messages_of_a_recording_are_those_of_its_clients(tmp_path: Path) -> None:
    people = {f"site {number}": ({"weight": table(DRAWS, 40).astype("f")}, 40) for number in range(3)}
    with Recorder(tmp_path / "run", holds="deltas", parameters={"weight": (40, 6)}) as recorder:
        recorder.round(0, None, people)
    assert is_recording(tmp_path / "run")
    messages = dict(recorded_messages(tmp_path / "run"))
    assert list(messages) == [f"000000-0000, client {number}" for number in (1, 2, 3)]
    assert all(message.examples == 40 for message in messages.values())
    assert all(linted(message)[0].kind == "raw-rows" for message in messages.values())


def damaged(content: bytes, draws: np.random.Generator) -> bytes:
    """Some bytes changed, a part doubled or cut off, or a number of four bytes made large."""
    changed = bytearray(content)
    for _ in range(int(draws.integers(1, 8))):
        changed[int(draws.integers(len(changed)))] = int(draws.integers(256))
    kind = int(draws.integers(4))
    place = int(draws.integers(len(changed)))
    if kind == 0:
        del changed[place:]
    elif kind == 1:
        changed[place:place] = changed[: int(draws.integers(1, 200))]
    elif kind == 2:
        changed[place : place + 4] = b"\xff\xff\xff\x7f"
    return bytes(changed)


def read_all(folder: Path, seeds: int) -> int:
    """Reads and lints damaged copies of every file; anything but an `InputError` goes on. Returns their number."""
    draws = np.random.default_rng(7)
    count = 0
    for name, path in sorted(files_of(folder).items()):
        content = path.read_bytes()
        for _ in range(seeds):
            hostile = folder / f"hostile {name}"
            hostile.write_bytes(damaged(content, draws))
            count += 1
            try:
                linted(read_message(hostile))
            except InputError:
                continue
    return count


def test_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    assert read_all(tmp_path, 12) == 12 * 12


HOSTILE: dict[str, Any] = {
    "deep.json": b"[" * 10**6,
    "many.json": b"[" + b"{}," * 5_000_000 + b"{}]",
    "digits.json": b'{"a": ' + b"9" * 10**6 + b"}",
    "lists.json": b"[" + b"[1]," * 400_000 + b"[1]]",
    "wide.csv": b"a," * 4_000_000,
    "quote.csv": b'a,b\n"' + b"x" * 10**6,
    "header.npy": b"\x93NUMPY\x02\x00\xff\xff\xff\x7f{",
    "shape.npy": b"\x93NUMPY\x01\x00\x46\x00"
    + b"{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999,), }".ljust(70),
    "deep.npy": b"\x93NUMPY\x01\x00\x00\x40" + b"(" * 0x4000,
    "long.safetensors": b"\xff" * 8 + b"{}",
    "text.bin": b"a" * 10**6,
    "digits.txt": b"9" * 10**7,
    "dots.txt": b"1." * 10**6,
    "mail.txt": b"a.b@" * 10**6,
}


@pytest.mark.integration
def test_hostile_files_take_neither_a_gigabyte_nor_a_minute(tmp_path: Path) -> None:
    code = """
import resource, sys
from pathlib import Path
from fedleak_recorder.errors import InputError
from fedleak_recorder.lint.linting import linted
from fedleak_recorder.lint.reading import read_message
resource.setrlimit(resource.RLIMIT_AS, (2**30 + 2**29, 2**30 + 2**29))
for name in sys.argv[1:]:
    try:
        linted(read_message(Path(name)))
    except InputError as error:
        assert len(str(error)) < 2000
# Of this program alone: ru_maxrss has that of the process which started it, too.
status = Path("/proc/self/status").read_text()
print(status.partition("VmHWM:")[2].split()[0])
"""
    for name, content in HOSTILE.items():
        (tmp_path / name).write_bytes(content)
        words = [sys.executable, "-c", code, str(tmp_path / name)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, (name, done.stderr[-500:])
        assert int(done.stdout) < 2**20, name  # kilobytes
