"""Sweeps: every point is one that the command takes, by the agent's own code; one point trains, attacks and logs."""

import importlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedleak.commands import program
from fedleak.core.metric_table import METRICS
from fedleak.evaluation.scores import records
from fedleak.evaluation.stored_run import read_results
from fedleak.tables import training
from tests import offline_agent, toys
from tests.command_lines import training_of
from tests.places import ROOT

SWEEPS = sorted((ROOT / "configs/sweeps").glob("*.yaml"))
UTILITIES = {"val/hr@10", "val/ndcg@10"}


def read(path: Path) -> dict[str, Any]:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def arguments(sweep: dict[str, Any], point: dict[str, Any]) -> list[str]:
    """What train.py is given at a point."""
    line = offline_agent.command(sweep, point)
    assert line[:3] == ["/usr/bin/env", "bash", "configs/cluster/launch.sh"]
    return line[3:]


def covering(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first points that hold every value of every parameter."""
    seen: set[tuple[str, str]] = set()
    chosen = []
    for point in points:
        values = {(name, repr(value)) for name, value in point.items()}
        if not values <= seen:
            chosen.append(point)
            seen |= values
    return chosen


def test_there_is_one_for_every_paper_and_for_the_learner() -> None:
    assert {path.stem.split("_")[0] for path in SWEEPS} == {"raifle", "deanon", "pac", "decaf", "fncf"}


@pytest.mark.integration
@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_every_value_of_a_sweep_reaches_the_training(path: Path) -> None:
    sweep = read(path)
    chosen = covering(offline_agent.points(sweep))
    told = [training_of(*arguments(sweep, point)) for point in chosen]
    assert len({yaml.safe_dump(configuration) for configuration in told}) == len(chosen)
    trainer = told[0]["trainer"]
    assert trainer["default_root_dir"] == f"runs/{path.stem}"
    assert trainer["logger"]["class_path"].endswith("WandbLogger")
    paths = [callback["class_path"].rsplit(".", 1)[1] for callback in trainer["callbacks"]]
    assert paths.index("DeltaRecorder") < paths.index("Audit")
    audit = trainer["callbacks"][paths.index("Audit")]["init_args"]
    classes = [a["class_path"].rsplit(".", 1) for a in audit["attacks"]]
    names = {getattr(importlib.import_module(module), name).name for module, name in classes}
    assert sweep["metric"]["name"] in UTILITIES | {f"audit/{name}/{metric}" for name in names for metric in METRICS}


def test_a_run_of_a_sweep_has_a_folder_of_its_own() -> None:
    agent = {"WANDB_SWEEP_ID": "s", "WANDB_RUN_ID": "r1"}
    assert training.run_folder("runs/x", agent) == "runs/x/r1"
    assert training.run_folder(None, agent) == "runs/r1"
    assert training.run_folder("runs/x", {"WANDB_RUN_ID": "r1"}) == "runs/x"
    assert training.run_folder(None, {}) is None


@pytest.mark.integration
def test_a_point_trains_attacks_and_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = read(ROOT / "configs/sweeps/raifle_local_dp.yaml")
    other = {"fncf_movielens": "fncf_synthetic", "=runs/": f"={tmp_path}/"}
    line = [_replaced(str(part), other) for part in sweep["command"]]
    small = ("--data.users=24", "--data.items=120", "--data.clients_per_round=24", "--trainer.max_steps=1")
    sweep["command"] = [*line[:-1], *small, "--trainer.val_check_interval=1", "--model.local.epochs=2", line[-1]]
    monkeypatch.chdir(ROOT)
    for name in ("WANDB_SWEEP_ID", "WANDB_RUN_ID", "WANDB_DIR", "WANDB_MODE", "WANDB_SWEEP_PARAM_PATH"):
        monkeypatch.setenv(name, "")  # the agent writes into the environment: restored after the test
    monkeypatch.setenv("WANDB_SILENT", "true")
    point = offline_agent.points(sweep)[-1]
    assert point["model.init_args.defenses.init_args.epsilon"] == "inf"
    assert offline_agent.run(sweep, point, "r1", tmp_path) == 0

    run = tmp_path / "raifle_local_dp" / "r1"
    results = {(r["attack"], r["metric"]): r for r in records(read_results(run).results)}
    assert results["direction", "auc"]["mean"] > 0.9
    assert results["popularity", "auc"]["mean"] < results["direction", "auc"]["mean"]
    logged = wandb_files(run)
    assert sweep["metric"]["name"].encode() in logged["run"]
    assert b"val/hr@10" in logged["run"]
    table = json.loads(logged["table"])
    assert [row[0] for row in table["data"]].count("direction") == 6  # auc, f1, and four of the posterior
    assert b"<svg" in logged["html"]


def _replaced(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


def wandb_files(run: Path) -> dict[str, bytes]:
    """The offline run that lies in a run's folder: what it logged, its table, a figure."""
    (folder,) = (run / "wandb").glob("offline-run-*")
    (log,) = folder.glob("run-*.wandb")
    media = folder / "files/media"
    until = time.monotonic() + 60
    while b"audit/" not in log.read_bytes() and time.monotonic() < until:
        time.sleep(0.1)  # another process of W&B writes the file, also after the run has ended
    return {
        "run": log.read_bytes(),
        "table": next(media.rglob("*.table.json")).read_bytes(),
        "html": next(media.rglob("*.html")).read_bytes(),
    }


@pytest.mark.integration
def test_an_audit_is_logged_offline_unless_somebody_has_logged_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toys.train(tmp_path, rounds=1)
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_RUN_ID", "WANDB_SWEEP_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))  # where a login would be kept
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_SILENT", "true")
    line = ["audit", str(tmp_path / "deltas"), "--out", str(tmp_path / "out"), "--wandb", "fedleak"]
    assert program.main(line) == 0
    logged = wandb_files(tmp_path / "out")
    assert b"audit/direction/auc" in logged["run"]
    assert json.loads(logged["table"])["columns"][:4] == ["attack", "setting", "metric", "mean"]
    assert b"<svg" in logged["html"]
