"""The command: what it prints and its exit status."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save_file

from fedleak_guard.command import main
from fedleak_guard.message import tensors_hash
from tests.guard_toys import log_of, message, model, site, write_policy

Printed = pytest.CaptureFixture[str]


def test_verify_says_what_left(tmp_path: Path, capsys: Printed) -> None:
    guard = site(tmp_path)
    for number in range(3):
        guard.release(message(number))
    path = log_of(tmp_path)
    assert main(["verify", str(path)]) == 0
    said = capsys.readouterr().out
    assert "3 entries in an unbroken chain" in said
    assert "3 messages released (3 with tensors), 0 refused" in said
    head = json.loads(path.read_text().splitlines()[1])["hash"]
    assert main(["verify", str(path), "--head", head]) == 0
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:1]))
    assert main(["verify", str(path), "--head", head]) == 2
    assert "was cut off" in capsys.readouterr().err


def test_verify_of_a_changed_log_fails_in_one_line(tmp_path: Path, capsys: Printed) -> None:
    site(tmp_path).release(message())
    path = log_of(tmp_path)
    path.write_text(path.read_text().replace("released", "refused "))
    assert main(["verify", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["verify", str(tmp_path / "none")]) == 2


def test_check_policy_lists_what_findings_do(tmp_path: Path, capsys: Printed) -> None:
    path = write_policy(tmp_path, "update: {max_norm: 2}\nfindings: {update-norm: log}\nrequired: [own-records]\n")
    assert main(["check-policy", str(path)]) == 0
    said = capsys.readouterr().out
    assert "update-norm: log" in said
    assert "own-records: refuse; needs fedleak; required" in said
    assert main(["check-policy", str(write_policy(tmp_path, "upd: 1\n"))]) == 2
    assert "Did you mean" in capsys.readouterr().err


def test_the_hash_of_a_file_is_that_of_the_received_model(tmp_path: Path, capsys: Printed) -> None:
    save_file(model(), tmp_path / "model.safetensors")
    np.savez(tmp_path / "model.npz", **model())  # type: ignore[arg-type]
    for name in ("model.safetensors", "model.npz"):
        assert main(["hash", str(tmp_path / name)]) == 0
        assert capsys.readouterr().out.strip() == tensors_hash(model())
    (tmp_path / "text.safetensors").write_text("text")
    assert main(["hash", str(tmp_path / "text.safetensors")]) == 2


def test_evidence_is_written_next_to_the_log(tmp_path: Path) -> None:
    site(tmp_path).release(message())
    assert main(["evidence", str(log_of(tmp_path))]) == 0
    assert json.loads((tmp_path / "evidence/egress.json").read_text())["messages"] == 1


@pytest.mark.parametrize("command", ["schema", "checks"])
def test_what_a_policy_may_hold_is_printed(command: str, capsys: Printed) -> None:
    assert main([command]) == 0
    assert "L2 norm of the update" in capsys.readouterr().out


def test_a_gateway_without_flower_or_with_a_wrong_address_is_one_line(
    tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["flower-gateway", "--superlink", "127.0.0.1:1", "--policy", str(write_policy(tmp_path))]
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "fedleak_guard.flower_gateway", None)
        assert main(command) == 2
    assert "expected Flower 1.41 or later" in capsys.readouterr().err
    monkeypatch.setitem(
        sys.modules, "fedleak_guard.flower_gateway", SimpleNamespace(Gateway=None, capacity=None, server_of=None)
    )
    for address in ("9192x", "127.0.0.1:65536"):
        assert main([*command, "--listen", address]) == 2
        assert "HOST:PORT after --listen" in capsys.readouterr().err
