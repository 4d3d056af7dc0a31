"""The experiments on PAC identifiability, small and on generated users."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from experiments import read_experiment
from experiments.federated_mf import Federation, held_out_hits
from modules.recommendation import USER_EMBEDDING
from protocol.errors import InputError
from tests.experiments.tables import Result, read, reproduce

SMALL: dict[str, Any] = {
    "kind": "identifiability",
    "experiment": "t",
    "metrics": ["success", "error", "label-error", "bound", "hr@10", "cosine-after", "detected", "false-alarm"],
    "theorem": 1,
    "labels": {"synthetic": [0.3]},
    "interactions": [1, 20],
    "multiples": [1],
    "users": 20,
    "rounds_per_training": 6,
    "federation": {"clients": 30, "dim": 6, "updates": 3},
    "attacks": {"pac": {}, "pac-spectral": {}, "chance": {}},
}


def run(tmp_path: Path, **changes: Any) -> list[Result]:
    assert reproduce(tmp_path, yaml.safe_dump({**SMALL, **changes})) == 0
    return read(tmp_path / "out")


def value(results: list[Result], name: str, metric: str, **setting: Any) -> float:
    found = [
        r for r in results if (r.attack, r.metric) == (name, metric) and setting.items() <= r.setting.items()
    ]  # fmt: skip
    assert len(found) == 1, found
    return found[0].mean


def test_theorem_1_holds_and_the_client_loses_nothing(tmp_path: Path) -> None:
    results = run(tmp_path)
    assert value(results, "pac", "success", of_bound=1) >= 0.95
    assert value(results, "pac-spectral", "success", interactions=20) == 1
    assert abs(value(results, "chance", "error", interactions=20) - 0.5) < 0.15
    assert value(results, "client", "cosine-after") == pytest.approx(1)
    assert value(results, "client", "hr@10", when="after restoring") == value(
        results, "client", "hr@10", when="before the attack"
    )
    assert value(results, "probe-check", "detected") == 1
    # Proposition 1: the estimate errs on the labels as the client's own vector does, since it errs nowhere else.
    assert value(results, "pac-spectral", "label-error", interactions=20) == pytest.approx(
        value(results, "own-vector", "label-error", interactions=20)
    )
    page = (tmp_path / "out/report.html").read_text()
    assert "success against interactions" in page


def test_other_probes_move_the_client(tmp_path: Path) -> None:
    changes = {"theorem": 2, "tolerance": 0.2, "noises": [0.01], "probes": ["shuffled"], "multiples": []}
    results = run(tmp_path, **changes)
    assert value(results, "client", "cosine-after") < 0.999
    assert value(results, "pac-spectral", "error", interactions=20) < 0.3


def test_a_passive_server_learns_from_honest_rounds(tmp_path: Path) -> None:
    kept = ("experiment", "labels", "users", "federation", "attacks", "rounds_per_training")
    config = {key: SMALL[key] for key in kept} | {
        "kind": "identifiability-passive",
        "metrics": ["error"],
        "rounds": [1, 2],
    }
    assert reproduce(tmp_path, yaml.safe_dump(config)) == 0
    results = read(tmp_path / "out")
    assert value(results, "pac-spectral", "error", rounds=2) < 0.3
    assert abs(value(results, "chance", "error", rounds=2) - 0.5) < 0.15
    assert "passive server" in (tmp_path / "out/report.html").read_text()


def test_the_hits_are_those_of_the_modules_own_metric() -> None:
    federation = Federation(clients=30, dim=6)
    source = federation.source("synthetic", 0.3, root=None, seed=0)
    module = federation.module(source, noise=0.0, seed=0)
    for batch in source.val_dataloader():
        module.update_metrics(batch)
    hits = held_out_hits(source, module.item_embedding.weight.detach(), module.private[USER_EMBEDDING])
    assert float(hits.nanmean()) == pytest.approx(float(module.hit_rate.compute()))
    nothing = torch.zeros_like(module.item_embedding.weight)
    assert float(held_out_hits(source, nothing, module.private[USER_EMBEDDING]).nanmean()) == 0


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"labels": {"synthetic": [0.5]}}, "Assumption 1"),
        ({"labels": {"steam-200k": ["liked"]}}, "liked"),
        ({"losses": ["perceptron"]}, "Assumption 2"),
        ({"noises": [0.1]}, "theorem 1"),
        ({"theorem": 3}, "theorem 3, protocol batches"),
        ({"probes": ["ones"]}, "ones"),
        ({"labels": {"nowhere": [0.3]}}, "nowhere"),
    ],
)
def test_what_no_theorem_allows_is_refused(tmp_path: Path, changes: dict[str, Any], found: str) -> None:
    (tmp_path / "t.yaml").write_text(yaml.safe_dump({**SMALL, **changes}))
    with pytest.raises(InputError, match=found):
        read_experiment(tmp_path / "t.yaml")
