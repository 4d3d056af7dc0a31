"""Downloads: checked, unpacked whole, and by one process of several."""

import hashlib
import io
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torchvision

from fedleak.core.errors import InputError
from fedleak.core.io.download import Archive, fetch_archive
from fedleak.datamodules.images.cifar10 import CIFAR10
from fedleak.datamodules.images.mnist import MNIST
from tests.datamodules import image_trees as trees
from tests.places import ROOT

RANK = """
import sys
from pathlib import Path
from fedleak.core.io.download import Archive, fetch_archive
url, md5, root = sys.argv[1:]
target = Path(root) / "tiny" / "u.data"
print("ready", flush=True)
sys.stdin.readline()
fetch_archive(Archive(url, md5), Path(root), target=target)
print(len(target.read_bytes()))
"""


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("tiny/u.data", b"1\t2\t3\t4\n" * 1000)
    return buffer.getvalue()


@pytest.fixture
def origin() -> Iterator[tuple[Archive, list[str]]]:
    """A slow server of one archive on this machine, and what it was asked for."""
    content, asked = zipped(), []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            time.sleep(0.5)
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/tiny.zip"
    yield Archive(url, hashlib.md5(content).hexdigest()), asked
    server.shutdown()
    server.server_close()


@pytest.mark.integration
def test_of_two_processes_one_fetches_and_both_read(origin: tuple[Archive, list[str]], tmp_path: Path) -> None:
    archive, asked = origin
    arguments = [archive.url, archive.md5, str(tmp_path / "data")]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for rank in ranks:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "ready\n"
    for rank in ranks:
        assert rank.stdin is not None
        rank.stdin.write("\n")
        rank.stdin.flush()
    for rank in ranks:
        out, err = rank.communicate(timeout=60)
        assert rank.returncode == 0, err
        assert out == "8000\n"
    assert asked == ["/tiny.zip"]
    assert not [path for path in (tmp_path / "data").iterdir() if path.name.startswith("tmp")]


def test_what_is_there_is_not_fetched_again_and_what_is_wrong_is_refused(
    origin: tuple[Archive, list[str]], tmp_path: Path
) -> None:
    archive, asked = origin
    target = tmp_path / "tiny" / "u.data"
    with pytest.raises(InputError, match="unpack"):
        fetch_archive(Archive(archive.url, "0" * 32), tmp_path, target=target)
    assert not target.exists()
    fetch_archive(archive, tmp_path, target=target)
    before = list(asked)
    fetch_archive(archive, tmp_path, target=target)
    assert asked == before


@pytest.mark.parametrize("make", [MNIST, CIFAR10])
def test_images_are_fetched_once(make: type[MNIST | CIFAR10], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that ask at once, as two ranks do; a lock of one process holds back its own threads too."""
    asked: list[str] = []

    def slowly(self: object) -> None:
        asked.append(type(self).__name__)
        time.sleep(0.3)
        trees.write_idx(tmp_path)
        (tmp_path / "cifar-10-batches-py").mkdir(exist_ok=True)
        raise RuntimeError("this is as far as the test goes")

    monkeypatch.setattr(torchvision.datasets.MNIST, "download", slowly)
    monkeypatch.setattr(torchvision.datasets.CIFAR10, "download", slowly)
    failed: list[InputError] = []

    def fetch(data: MNIST | CIFAR10) -> None:
        try:
            data.prepare_data()
        except InputError as error:
            failed.append(error)

    ranks = [threading.Thread(target=fetch, args=(make(root=str(tmp_path), download=True),)) for _ in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert len(asked) == len(failed) == 1
