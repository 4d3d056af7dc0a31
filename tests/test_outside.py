"""What a user adds lies outside the checkout: no line of the project changes for it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import attack
from tests.toys import train

Ran = Callable[..., tuple[int, str]]
ROOT = Path(__file__).resolve().parent.parent
ATTACKS = ("--attacks", "my_audit.CountByNorm", "--attacks", "my_audit.CountGuess")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package outside the checkout, and a recording."""
    made = tmp_path_factory.mktemp("outside")
    shutil.copytree(ROOT / "tests" / "outside" / "my_audit", made / "my_audit")
    train(made / "clicks", rounds=1, users=30)
    return made


@pytest.fixture
def ran(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ran:
    """Runs attack.py in the folder of the package; gives its exit status and what it printed."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))

    def run(*arguments: str) -> tuple[int, str]:
        status = attack.main(arguments)
        said = capsys.readouterr()
        return status, said.out + said.err

    return run


@pytest.mark.integration
def test_an_attack_with_a_new_estimate_and_a_new_metric_runs(folder: Path) -> None:
    out = folder / "run"
    arguments = ("--attack.share", "0.4", "--deltas", "clicks/deltas", "--out", str(out))
    command = [sys.executable, str(ROOT / "attack.py"), "run", "--attack", "my_audit.CountByNorm", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads((out / "results.json").read_text(encoding="utf-8"))["results"]
    assert (result["attack"], result["metric"], result["n"]) == ("count-by-norm", "count-error", 30)
    assert (result["family"], result["baseline"]) == ("interaction-counts", False)


@pytest.mark.integration
def test_it_stands_in_the_audit_with_its_gate_its_baseline_and_its_headline(folder: Path, ran: Ran) -> None:
    out = folder / "audit"
    status, said = ran(
        "audit", "--deltas", "clicks/deltas", "--out", str(out), *ATTACKS, "--gate", "count-error=0.0001"
    )
    assert status == 0, said
    assert "gate ok: lowest count-error" in said
    content = json.loads((out / "results.json").read_text(encoding="utf-8"))
    results = {r["attack"]: r for r in content["results"] if r["metric"] == "count-error"}
    assert results.keys() == {"count-by-norm", "count-guess"}
    assert results["count-guess"]["baseline"]
    pairs = {(d["attack"], d["against"]) for d in content["differences"] if d["metric"] == "count-error"}
    assert pairs == {("count-by-norm", "count-guess")}
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "The count error is the relative error" in page
    status, said = ran("audit", "--deltas", "clicks/deltas", "--out", str(out), *ATTACKS, "--gate", "count-error=1000")
    assert status == 3, said
    assert "GATE FAILED: count-by-norm count-error" in said


@pytest.mark.integration
def test_the_headline_is_its_own(folder: Path, ran: Ran) -> None:
    out = folder / "alone"
    ran("run", "--attack", "my_audit.CountByNorm", "--deltas", "clicks/deltas", "--out", str(out))
    status, _ = ran("report", str(out), "--out", str(folder / "joined"))
    assert status == 0
    page = (folder / "joined" / "report.html").read_text(encoding="utf-8")
    assert "how many of the items it was shown the client interacted with" in page


@pytest.mark.integration
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--attacks", "my_audit.interaction_counts.UnknownNeed"), "gradients"),
        (("--attacks", "my_audit.interaction_counts.WrongShape"), "counts: expected shape"),
        (("--attacks", "my_audit.interaction_counts.WrongType"), "expected CountEstimate, got Tensor"),
        (("--attacks", "my_audit.interaction_counts.Raises"), "ZeroDivisionError: of no use"),
        (("--attacks", "my_audit.CountByNorm,my_audit.interaction_counts.Twice"), "count-by-norm"),
        (("--attacks", "my_audit.NoSuchAttack"), "NoSuchAttack"),
        (("--attacks", "directoin"), "direction"),
        (("--gate", "count-eror=1"), "count-eror"),
    ],
)
def test_what_is_wrong_with_it_is_one_line(folder: Path, ran: Ran, arguments: tuple[str, ...], message: str) -> None:
    status, said = ran(
        "audit", "--deltas", "clicks/deltas", "--out", str(folder / "wrong"), "--victims", "6", *arguments
    )
    lines = [line for line in said.splitlines() if line.startswith("attack.py: ")]
    assert (status, len(lines)) == (2, 1), said
    assert message in lines[0]
    assert "Traceback" not in said
