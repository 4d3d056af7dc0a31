"""A real Flower network on this machine: a SuperLink, the guard's gateway, a SuperNode, and apps that know no guard.

What arrives at the server's strategy is what the app's server prints, one JSON object a line.
"""

import contextlib
import datetime
import ipaddress
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.places import ROOT

PROJECT = """\
[project]
name = "app"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "tests"

[tool.flwr.app.components]
serverapp = "app.server:app"
clientapp = "app.client:app"

[tool.flwr.app.config]
fault = "none"
"""
CLIENT = """\
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message, context):
    fault = context.run_config["fault"]
    if fault == "raises":
        raise RuntimeError("patient 7")
    (record,) = message.content.array_records.values()
    params = {name: array.numpy() + np.float32(0.25) for name, array in record.items()}
    if fault == "tensor":
        params["extra"] = np.ones(3, np.float32)
    metrics = {"num-examples": 20, "loss": 0.5, **({"patient 7": 1.0} if fault == "metric" else {})}
    content = RecordDict({"arrays": ArrayRecord({name: Array(value) for name, value in params.items()})})
    content["metrics"] = MetricRecord(metrics)
    if fault == "text":
        content["config"] = ConfigRecord({"note": "patient 7"})
    return Message(content=content, reply_to=message)
"""
SERVER = """\
import json

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


class Arrived(FedAvg):
    def aggregate_train(self, server_round, replies):
        received = list(replies)
        for reply in received:
            arrived = {"error": reply.error.reason if reply.has_error() else None, "sum": None}
            if not reply.has_error():
                arrays = reply.content["arrays"]
                arrived["sum"] = float(sum(array.numpy().sum() for array in arrays.values()))
            print("ARRIVED", json.dumps(arrived), flush=True)
        return super().aggregate_train(server_round, received)


@app.main()
def main(grid, context):
    first = ArrayRecord({"weight": Array(np.zeros((2, 4), np.float32)), "bias": Array(np.zeros(2, np.float32))})
    strategy = Arrived(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    strategy.start(grid=grid, initial_arrays=first, num_rounds=1)
"""
POLICY = """\
format: 1
evidence: {folder}/evidence
tensors:
  - {{name: weight, shape: [2, 4], dtype: float32}}
  - {{name: bias, shape: [2], dtype: float32}}
metrics: {{names: [loss]}}
"""


class Network:
    """A running network; `run` runs an app, and returns what arrived at its server."""

    def __init__(self, folder: Path, superlink: int, environment: dict[str, str], gateway: int) -> None:
        self.folder, self.superlink, self.environment, self.gateway = folder, superlink, environment, gateway

    def run(self, fault: str) -> list[dict[str, Any]]:
        command = [_program("flwr"), "run", str(self.folder / "app"), "here", "--stream", "-c", f'fault="{fault}"']
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=240, check=False)
        (self.folder / "said").write_text(done.stdout + done.stderr)
        lines = [line.partition("ARRIVED ")[2] for line in done.stdout.splitlines() if "ARRIVED " in line]
        return [json.loads(line) for line in lines]


@contextlib.contextmanager
def network(folder: Path, *, authenticated: bool = False) -> Iterator[Network]:
    """A network whose SuperNode reaches the SuperLink through the gateway alone.

    Args:
        folder: for its files.
        authenticated: whether all connections have TLS, and SuperLink and gateway know the keys of their nodes.
    """
    for name, text in {"pyproject.toml": PROJECT, "app/client.py": CLIENT, "app/server.py": SERVER}.items():
        path = folder / "app" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "app/app/__init__.py").write_text("")
    (folder / "policy.yaml").write_text(POLICY.format(folder=folder))
    superlink, gateway, runtime = _ports(3)
    (folder / "home").mkdir()
    files = write_keys(folder) if authenticated else {}
    security = f'root-certificates = "{files["ca.pem"]}"' if authenticated else "insecure = true"
    at = f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{superlink}"\n{security}\n'
    (folder / "home/config.toml").write_text(at)
    paths = ":".join(str(ROOT / part) for part in ("", "recorder", "guard"))
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {"FLWR_HOME": str(folder / "home"), "FLWR_TELEMETRY_ENABLED": "0", "PYTHONPATH": paths, "PATH": programs}
    environment = {**os.environ, **own}
    commands = {
        "superlink": [_program("flower-superlink"), "--port", str(superlink)],
        "gateway": [sys.executable, "-m", "fedleak_guard.command", "flower-gateway"],
        "supernode": [_program("flower-supernode"), "--port", str(runtime), "--superlink", f"127.0.0.1:{gateway}"],
    }
    commands["superlink"] += ["--disable-runtime-dependency-installation"]
    commands["gateway"] += ["--superlink", f"127.0.0.1:{superlink}", "--listen", f"127.0.0.1:{gateway}"]
    commands["gateway"] += ["--policy", str(folder / "policy.yaml")]
    if not authenticated:
        for command in commands.values():
            command.append("--insecure")
    else:
        # The certificate of the SuperLink, for its own server and for the programs that it starts.
        own_certificate = {"certfile": "server.pem", "keyfile": "server.key", "ca-certfile": "ca.pem"}
        for option, name in own_certificate.items():
            commands["superlink"] += [f"--ssl-{option}", files[name]]
        commands["superlink"] += ["--enable-supernode-auth"]
        commands["gateway"] += ["--root-certificates", files["ca.pem"], "--certificate", files["server.pem"]]
        commands["gateway"] += ["--key", files["server.key"], "--superlink-private-key", files["gateway"]]
        commands["gateway"] += ["--supernode-public-key", files["supernode.pub"]]
        commands["supernode"] += ["--root-certificates", files["ca.pem"]]
        commands["supernode"] += ["--auth-supernode-private-key", files["supernode"]]
    with contextlib.ExitStack() as stack:
        for name, command in commands.items():
            log = stack.enter_context((folder / f"{name}.log").open("w"))
            made = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)
            stack.callback(_stop, made)
            if name != "supernode":
                _wait({"superlink": superlink, "gateway": gateway}[name], made)
            if name == "superlink" and authenticated:
                register = [_program("flwr"), "supernode", "register", files["gateway.pub"], "here"]
                said = subprocess.run(
                    register, env=environment, capture_output=True, text=True, timeout=60, check=False
                )
                (folder / "registered.log").write_text(said.stdout + said.stderr)
        yield Network(folder, superlink, environment, gateway)


def write_keys(folder: Path) -> dict[str, str]:
    """Writes an authority, a certificate of this machine, and keys of gateway and SuperNode; returns their paths."""
    now = datetime.datetime.now(datetime.UTC)
    authority, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])

    def certificate(name: str, key: ec.EllipticCurvePrivateKey, *, is_authority: bool) -> bytes:
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        names = x509.SubjectAlternativeName([address, x509.DNSName("localhost")])
        made = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(names, critical=False)
        )
        return bytes(made.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    plain = serialization.NoEncryption()
    contents = {
        "ca.pem": certificate("tests", authority, is_authority=True),
        "server.pem": certificate("127.0.0.1", server, is_authority=False),
        "server.key": server.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, plain
        ),
    }
    for name in ("gateway", "supernode"):
        key = ec.generate_private_key(ec.SECP384R1())
        contents[name] = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, plain)
        contents[f"{name}.pub"] = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return {name: str(folder / name) for name in contents}


def _program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def _ports(count: int) -> list[int]:
    """Free ports."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _wait(port: int, process: "subprocess.Popen[bytes]") -> None:
    """Waits until a program listens."""
    limit = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < limit:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
