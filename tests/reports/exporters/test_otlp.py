"""Metrics arrive at a collector on loopback, with their names, attributes and values."""

import gzip
import math
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fedleak.core.errors import InputError
from fedleak.reports.exporters.otlp import Otlp
from tests.reports.toys import LINES, cell, run, table

needs_otel = pytest.mark.usefixtures("otel")
Points = dict[tuple[str, str], tuple[float, dict[str, str]]]


@pytest.fixture
def otel() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")


class Receiver(ThreadingHTTPServer):
    """Keeps the requests of OTLP over HTTP that it gets."""

    daemon_threads = True

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.bodies: list[tuple[str, bytes]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def metrics(self) -> tuple[dict[str, str], Points]:
        """Attributes of the resource, and values with their attributes by name and attack."""
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

        points: Points = {}
        resource: dict[str, str] = {}
        for path, body in self.bodies:
            assert path == "/v1/metrics"
            for one in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                resource |= {pair.key: pair.value.string_value for pair in one.resource.attributes}
                for metric in (metric for scope in one.scope_metrics for metric in scope.metrics):
                    for point in metric.gauge.data_points:
                        about = {pair.key: pair.value.string_value for pair in point.attributes}
                        points[metric.name, about["attack"]] = point.as_double, about
        return resource, points


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.bodies.append((self.path, body))
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def receiving(status: int = 200) -> Iterator[Receiver]:
    with Receiver(status) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def results() -> Any:
    rows = [cell("codebook", 0.7, half=0.1, epsilon=1.5), cell("chance", math.nan), cell("popularity", 0.5, half=0.1)]
    return run(results=table(*rows, lines=LINES), experiment="e", commit="abc")


def check(server: Receiver) -> None:
    resource, points = server.metrics()
    assert resource.items() >= {"service.name": "fedleak", "fedleak.run": "e", "fedleak.commit": "abc"}.items()
    values = {key: value for key, (value, _) in points.items()}
    assert values == {
        ("fedleak.leak", "codebook"): 0.7,
        ("fedleak.leak.low", "codebook"): 0.7 - 0.1,
        ("fedleak.leak.high", "codebook"): 0.7 + 0.1,
        ("fedleak.leak", "popularity"): 0.5,
        ("fedleak.leak.low", "popularity"): 0.5 - 0.1,
        ("fedleak.leak.high", "popularity"): 0.5 + 0.1,
    }
    about = {attack: own for (_, attack), (_, own) in points.items()}
    assert about["codebook"] == {
        **{"attack": "codebook", "metric": "auc", "setting": "d, epsilon 1.5", "family": "ranking"},
        "role": "attack",
    }
    assert about["popularity"]["role"] == "baseline"


@needs_otel
@pytest.mark.parametrize("path", ["", "/", "/v1/metrics"])
def test_values_and_intervals_are_read_back(tmp_path: Path, path: str) -> None:
    with receiving() as server:
        said = Otlp(server.address + path).export(results(), tmp_path)
    assert said == f"6 data points at {server.address}/v1/metrics"
    check(server)


@needs_otel
def test_the_address_may_be_that_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.address)
        Otlp().export(results(), tmp_path)
    check(server)


@needs_otel
def test_a_collector_that_takes_nothing_is_an_error_of_the_user(tmp_path: Path) -> None:
    with receiving(400) as server, pytest.raises(InputError, match="collector"):
        Otlp(server.address, timeout=2).export(results(), tmp_path)
    with pytest.raises(InputError, match="collector"):
        Otlp(f"http://127.0.0.1:{free_port()}", timeout=1).export(results(), tmp_path)


def free_port() -> int:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return int(own.getsockname()[1])


@needs_otel
@pytest.mark.integration
def test_a_collector_passes_the_metrics_on(tmp_path: Path) -> None:
    agent = Path(str(pytest.importorskip("rotel").__file__)).with_name("rotel-agent")
    port, other = free_port(), free_port()
    with receiving() as server:
        words = [str(agent), "start", "--otlp-http-endpoint", f"127.0.0.1:{port}", "--exporter", "otlp"]
        words += ["--otlp-grpc-endpoint", f"127.0.0.1:{other}", "--otlp-exporter-protocol", "http"]
        words += ["--otlp-exporter-endpoint", server.address, "--metrics-batch-timeout", "200ms"]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as collector:
            try:
                until(lambda: answers(port))
                Otlp(f"http://127.0.0.1:{port}").export(results(), tmp_path)
                until(lambda: bool(server.bodies))
            finally:
                collector.terminate()
        check(server)


def answers(port: int) -> bool:
    with socket.socket() as own:
        return own.connect_ex(("127.0.0.1", port)) == 0


def until(happened: Callable[[], bool]) -> None:
    for _ in range(300):
        if happened():
            return
        time.sleep(0.1)
    pytest.fail("nothing within 30 seconds")


def test_without_the_packages_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics.export", None)
    with pytest.raises(InputError, match="otel"):
        Otlp().export(results(), tmp_path)
