"""Metrics are read back from a server of MLflow on loopback."""

import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from fedleak.commands import program
from fedleak.core.errors import InputError
from fedleak.reports.exporters.mlflow import MLflow
from tests.reports.toys import LINES, cell, run, table


def results(**changed: Any) -> Any:
    rows = [cell("codebook", 0.7, half=0.1, epsilon=1.5), cell("codebook", 0.9, half=0.1, epsilon="inf")]
    rows += [cell("popularity", math.nan, epsilon=1.5)]
    return run(results=table(*rows, lines=LINES), experiment="e", commit="abc", **changed)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server of MLflow with a database of its own."""
    pytest.importorskip("mlflow.server")
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        port = own.getsockname()[1]
    words = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    words += ["--backend-store-uri", f"sqlite:///{folder}/db", "--artifacts-destination", str(folder / "artifacts")]
    address = f"http://127.0.0.1:{port}"
    with (folder / "log").open("w") as log:
        started = subprocess.Popen(words, stdout=log, stderr=log, cwd=folder, start_new_session=True)
        try:
            for _ in range(1500):
                try:
                    with urlopen(f"{address}/health", timeout=5):
                        break
                except (URLError, OSError):
                    assert started.poll() is None, (folder / "log").read_text()
                    time.sleep(0.2)
            yield address
        finally:
            os.killpg(started.pid, 15)
            started.wait()


@pytest.mark.integration
def test_values_and_intervals_are_read_back(server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results(command="python /somewhere/attack.py audit /somewhere/else/deltas").write(tmp_path)
    words = ("export", str(tmp_path), "--to", "mlflow", "--to.tracking_uri", server, "--to.experiment", "leaks")
    assert program.main(words) == 0
    said = capsys.readouterr().out
    assert "mlflow: 6 metrics in run " in said
    from mlflow import MlflowClient

    client = MlflowClient(server)
    experiment = client.get_experiment_by_name("leaks")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.run_id in said
    assert (found.info.run_name, found.info.status) == ("e", "FINISHED")
    assert found.data.metrics == {
        "audit/codebook- epsilon 1.5/auc": 0.7,
        "audit/codebook- epsilon 1.5/auc low": 0.7 - 0.1,
        "audit/codebook- epsilon 1.5/auc high": 0.7 + 0.1,
        "audit/codebook- epsilon inf/auc": 0.9,
        "audit/codebook- epsilon inf/auc low": 0.9 - 0.1,
        "audit/codebook- epsilon inf/auc high": 0.9 + 0.1,
    }
    parameters = found.data.params
    assert parameters["command"] == "python attack.py audit ..."
    assert (found.data.tags["mlflow.user"], found.data.tags["mlflow.source.name"]) == ("fedleak", "fedleak")
    assert (parameters["commit"], parameters["data sha256"]) == ("abc", "0")


@pytest.mark.integration
def test_a_server_that_does_not_answer_is_an_error_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        port = own.getsockname()[1]
    with pytest.raises(InputError, match="MLflow"):
        MLflow(f"http://127.0.0.1:{port}").export(results(), tmp_path)


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow.exceptions", None)
    with pytest.raises(InputError, match="mlflow"):
        MLflow().export(results(), tmp_path)
