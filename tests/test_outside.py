"""What a user adds lies outside the checkout: no line of the project changes for it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedleak.commands import program
from fedleak.commands import train as training
from tests.additions import KNOWN, ids_in, quick_ids, quick_tests, write_copy
from tests.places import ROOT
from tests.toys import train

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("without_figures")]

Ran = Callable[..., tuple[int, str]]
ATTACKS = ("--also", "my_audit.CountByNorm", "--also", "my_audit.CountGuess")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package outside the checkout, and a recording."""
    made = tmp_path_factory.mktemp("outside")
    shutil.copytree(ROOT / "tests" / "outside", made, dirs_exist_ok=True)
    (made / "data" / "visits").mkdir(parents=True)
    visits = [f"{person},{place}" for person in range(20) for place in range(person % 3, 60, 3 + person % 5)]
    (made / "data" / "visits" / "visits.csv").write_text("\n".join(visits))
    train(made / "clicks", rounds=1, users=30)
    return made


@pytest.fixture
def ran(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ran:
    """Runs fedleak in the folder of the package; gives its exit status and what it printed."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))

    def run(*arguments: str) -> tuple[int, str]:
        status = program.main(arguments)
        said = capsys.readouterr()
        return status, said.out + said.err

    return run


def results_in(folder: Path) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = json.loads((folder / "results.json").read_text(encoding="utf-8"))["results"]
    return content


def test_an_attack_with_a_new_estimate_and_a_new_metric_runs(folder: Path, ran: Ran) -> None:
    out = folder / "run"
    arguments = ("--attack.share", "0.4", "clicks/deltas", "--out", str(out))
    status, said = ran("run", "--attack", "my_audit.CountByNorm", *arguments)
    assert status == 0, said
    (result,) = results_in(out)
    assert (result["attack"], result["metric"], result["n"]) == ("count-by-norm", "count-error", 30)
    assert (result["family"], result["baseline"]) == ("interaction-counts", False)


def test_it_stands_in_the_audit_with_its_gate_its_baseline_and_its_headline(folder: Path, ran: Ran) -> None:
    out = folder / "audit"
    status, said = ran("audit", "clicks/deltas", "--out", str(out), *ATTACKS, "--gate", "count-error=0.0001")
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
    status, said = ran("audit", "clicks/deltas", "--out", str(out), *ATTACKS, "--gate", "count-error=1000")
    assert status == 3, said
    assert "GATE FAILED: count-by-norm count-error" in said


def test_an_exporter_writes_what_a_run_found(folder: Path, ran: Ran) -> None:
    out = folder / "exported"
    status, said = ran("run", "--attack", "direction", "clicks/deltas", "--out", str(out))
    assert status == 0, said
    status, said = ran("export", str(out), "--to", "my_audit.BestValue", "--to.metric", "auc")
    assert status == 0, said
    assert said == f"best-value: {out / 'best.txt'}\n"
    assert (out / "best.txt").read_text(encoding="utf-8").startswith("direction 0.")


def test_a_data_set_a_learner_and_a_defence_train_and_are_audited(folder: Path, ran: Ran) -> None:
    noise = '[{"class_path": "my_audit.Rounding", "init_args": {"step": 0.01}}]'
    run = ("--data.root", "data", "--trainer.default_root_dir", "places", f"--model.defenses={noise}")
    assert training.run(["fit", "--config", "configs/train/places.yaml", *run]) == 0
    status, said = ran("audit", "places/deltas", *ATTACKS)
    assert status == 0, said
    results = results_in(folder / "places")
    named = {result["attack"] for result in results}
    assert {"count-by-norm", "count-guess", "direction", "row-norm"} <= named
    assert {result["setting"]["data"] for result in results} == {"visits"}


def test_a_network_of_ones_own_is_simulated_by_attacks(folder: Path, ran: Ran) -> None:
    config = str(ROOT / "configs" / "train" / "decaf_digits.yaml")
    local = ("--model.local.learning_rate", "0.1", "--model.local.batch_size", "12")
    run = ("--model", "my_audit.SmallNet", *local, "--trainer.default_root_dir", "net", "--trainer.max_steps", "1")
    assert training.run(["fit", "--config", config, *run]) == 0
    command = [sys.executable, str(ROOT / "attack.py"), "audit", "net/deltas", "--victims", "6"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    refused = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "give --learner my_audit.small_net" in refused.stderr
    status, said = ran(*command[2:], "--learner", "my_audit.small_net")
    assert status == 0, said
    results = results_in(folder / "net")
    distances = {result["attack"]: result["mean"] for result in results if result["metric"] == "l1"}
    assert distances["closed-form"] < distances["uniform-present"], distances


def test_a_manipulation_is_sent_and_recorded(folder: Path, ran: Ran) -> None:
    run = ("--data", "SyntheticRanking", "--data.queries", "60", "--trainer.default_root_dir", "scaled")
    manipulation = ("--model.manipulation", "my_audit.Scaled", "--model.manipulation.factor", "3")
    config = str(ROOT / "configs" / "train" / "fpdgd_mq2008.yaml")
    more = ("--data.clients_per_round", "20", "--trainer.max_steps", "1")
    assert training.run(["fit", "--config", config, *run, *manipulation, *more]) == 0
    manifest = json.loads((folder / "scaled" / "deltas" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["config"]["manipulation"] == "scaled"
    status, said = ran("run", "--attack", "prior-only", "scaled/deltas")
    assert status == 0, said


def test_a_table_of_all_of_them(folder: Path, ran: Ran) -> None:
    table = ("reproduce", "configs/table/my_table.yaml", "--data.root", "data", "--jobs", "2")
    status, said = ran(*table)
    assert status == 0, said
    results = results_in(folder / "runs/my_table")
    by_step = {(r["setting"]["step"], r["attack"], r["metric"]): r["mean"] for r in results}
    assert {(5, "count-by-norm", "count-error"), (0.05, "count-guess", "count-error")} <= by_step.keys()
    assert by_step[0, "direction", "auc"] > 0.9 > by_step[5, "direction", "auc"]
    assert by_step[0, "updates", "update-norm"] > by_step[5, "updates", "update-norm"] == 0
    assert by_step[0, "model", "model-change"] > by_step[5, "model", "model-change"] == 0
    status, said = ran(*table, "--data", "my_audit.Visits", "--also", "row-norm", "--set", "model.dim=2")
    assert status == 0, said
    results = results_in(folder / "runs/my_table")
    assert "row-norm" in {result["attack"] for result in results}


def test_a_check_of_features_flags_a_manipulation(folder: Path, ran: Ran) -> None:
    status, said = ran("reproduce", "configs/table/my_rankings.yaml")
    assert status == 0, said
    results = results_in(folder / "runs/my_rankings")
    flagged = {r["setting"]["factor"]: r["mean"] for r in results if r["attack"] == "largest-value"}
    assert flagged[3] == 1 > 0.5 > flagged[1]


def test_the_headline_is_its_own(folder: Path, ran: Ran) -> None:
    out = folder / "alone"
    ran("run", "--attack", "my_audit.CountByNorm", "clicks/deltas", "--out", str(out))
    status, _ = ran("report", str(out), "--out", str(folder / "joined"))
    assert status == 0
    page = (folder / "joined" / "report.html").read_text(encoding="utf-8")
    assert "how many of the items it was shown the client interacted with" in page


@pytest.mark.parametrize(
    ("attack", "message"),
    [
        ("WrongShape", "counts: expected shape"),
        ("WrongType", "expected CountEstimate, got Tensor"),
        ("Raises", "ZeroDivisionError: of no use"),
    ],
)
def test_its_exception_is_its_own(folder: Path, ran: Ran, attack: str, message: str) -> None:
    out, added = str(folder / "own" / attack), f"my_audit.wrong_attacks.{attack}"
    status, said = ran("audit", "clicks/deltas", "--out", out, "--victims", "6", "--also", added)
    assert status == 0, said
    assert any("could not run: " in line and message in line for line in said.splitlines()), said
    assert "direction" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--also", "my_audit.wrong_attacks.UnknownNeed"), "gradients"),
        (("--also", "my_audit.CountByNorm,my_audit.wrong_attacks.Twice"), "count-by-norm"),
        (("--also", "my_audit.NoSuchAttack"), "NoSuchAttack"),
        (("--also", "directoin"), "direction"),
        (("--gate", "count-eror=1"), "count-eror"),
    ],
)
def test_what_is_wrong_with_it_is_one_line(folder: Path, ran: Ran, arguments: tuple[str, ...], message: str) -> None:
    status, said = ran("audit", "clicks/deltas", "--out", str(folder / "wrong"), "--victims", "6", *arguments)
    lines = [line for line in said.splitlines() if line.startswith("fedleak: ")]
    assert (status, len(lines)) == (2, 1), said
    assert message in lines[0]
    assert "Traceback" not in said


def test_files_in_the_folders_of_their_kinds_need_no_other_line(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Of the quick tests, in a copy of the checkout, those that are new and those that look over everything."""
    added = write_copy(tmp_path / "copy")
    known = {one.nodeid for one in request.session.items if one.get_closest_marker("integration") is None}
    if (
        not known
        or len({one.path for one in request.session.items}) < len(list((ROOT / "tests").rglob("test_*.py"))) / 2
    ):
        known = quick_ids(ROOT)  # this session has a few tests only
    (tmp_path / "known").write_text("\n".join(known), encoding="utf-8")
    done = quick_tests(tmp_path / "copy", ["-vv"], **{KNOWN: str(tmp_path / "known")})
    assert done.returncode == 0, done.stdout
    named = " ".join(ids_in(done.stdout) - known)
    for name in ("count-by-norm", "SmallNet", "PlaceVectors", "Rounding", "largest-value", "my_table", "places"):
        assert name in named, name
    code, programs = [str(path) for path in added if path.suffix == ".py"], Path(sys.executable).parent
    for words in (["ruff", "check", *code], ["ruff", "format", "--check", *code], ["lint-imports"]):
        command = [str(programs / words[0]), *words[1:]]
        done = subprocess.run(command, cwd=tmp_path / "copy", capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
