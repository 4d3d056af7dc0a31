"""Class paths of older versions lead to the classes of today."""

import importlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedleak.commands import train
from fedleak.core.moved import MOVED, MOVED_SINCE, current_path, with_current_paths
from fedleak.tables.parsed_training import Training
from tests.places import CONFIGS

OLD = {
    "attacks.Direction": "fedleak.attacks.recommendation.item_deltas.Direction",
    "attacks.manipulation.direct.Permutation": "fedleak.server.permutation.Permutation",
    "attacks.base.Attack": "fedleak.core.attack.Attack",
    "attacks.composition.decaf.Decaf": "fedleak.attacks.composition.decaf.Decaf",
    "callbacks.audit.Audit": "fedleak.callbacks.audit.Audit",
    "callbacks.Requeue": "fedleak.training.lightning.requeue.Requeue",
    "callbacks.stop_report.StopReport": "fedleak.recordings.stop_report.StopReport",
    "client.fncf.FNCFAlgorithm": "fedleak.client.fncf.FNCFAlgorithm",
    "datamodules.base.FederatedDataModule": "fedleak.training.data.FederatedDataModule",
    "datamodules.images.digits.Digits": "fedleak.datamodules.images.digits.Digits",
    "defenses.local_dp.LocalDP": "fedleak.defenses.local_dp.LocalDP",
    "defenses.manipulation_checks.Correlation": "fedleak.defenses.within_list_checks.Correlation",
    "fedleak.defenses.manipulation_checks.EqualScores": "fedleak.defenses.within_list_checks.EqualScores",
    "evaluation.guardrail.Guardrail": "fedleak.evaluation.guardrail.Guardrail",
    "experiments.after.devices.Maps": "fedleak.callbacks.steps.devices.Maps",
    "experiments.after.model_quality.Fitted": "fedleak.tables.after.model_quality.Fitted",
    "experiments.after.model_quality.Quality": "fedleak.callbacks.steps.devices.Quality",
    "experiments.cell.Cell": "fedleak.tables.cell.Cell",
    "fedleak.callbacks.requeue.Requeue": "fedleak.training.lightning.requeue.Requeue",
    "fedleak.callbacks.RoundProgress": "fedleak.training.lightning.round_progress.RoundProgress",
    "fedleak.tables.after.identifiability.Theorem": "fedleak.callbacks.steps.identifiability.Theorem",
    "modules.FNCF": "fedleak.modules.learners.fncf.FNCF",
    "modules.federated.FederatedModule": "fedleak.training.federated.FederatedModule",
    "modules.learners.fncf.FNCF": "fedleak.modules.learners.fncf.FNCF",
    "modules.NetworkLearner": "fedleak.training.network_learner.NetworkLearner",
    "modules.server.ServerOptimizer": "fedleak.training.server_optimizer.ServerOptimizer",
    "fedleak.core.metric_table.Metric": "fedleak.core.metric.Metric",
    "protocol.view.Release": "fedleak.core.release.Release",
    "protocol.view.RoundView": "fedleak.core.view.RoundView",
    "server.codebook.Codebook": "fedleak.server.codebook.Codebook",
}


@pytest.mark.parametrize("old", OLD)
def test_an_old_path_names_a_class_of_today(old: str) -> None:
    assert current_path(old) == OLD[old]
    module, _, name = OLD[old].rpartition(".")
    assert isinstance(getattr(importlib.import_module(module), name), type)


def test_every_new_place_is_there() -> None:
    for place in (*MOVED.values(), *MOVED_SINCE.values()):
        assert importlib.import_module(f"fedleak.{place}")


@pytest.mark.parametrize(
    "path",
    [
        *("modules.MyNet", "client.train", "client.algorithm.MyAlgorithm", "attacks.my_attack.Mine", "my_audit.Mine"),
        *("fedleak.callbacks.MyCallback", "fedleak.MyAttack", "fedleak.callbacks.DeltaRecorder"),
        *("attacks", "client.data/x", "..", "attacks.*", ""),
    ],
)
def test_what_fedleak_does_not_have_is_the_users(path: str) -> None:
    assert current_path(path) == path


def _with_old_paths(content: Any) -> Any:
    """A configuration as before 0.2."""
    if isinstance(content, dict):
        return {key: _with_old_paths(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_with_old_paths(value) for value in content]
    new_to_old = {new: old for old, new in OLD.items()}
    return new_to_old.get(content, content.removeprefix("fedleak.")) if isinstance(content, str) else content


def test_an_old_configuration_is_the_same_training() -> None:
    config = yaml.safe_load((CONFIGS / "train" / "fncf_synthetic.yaml").read_text(encoding="utf-8"))
    full = Training(config).plain
    old = _with_old_paths(full)
    assert old["model"]["class_path"] == "modules.learners.fncf.FNCF"
    assert with_current_paths(old) == full
    assert Training(old).plain == full


@pytest.mark.integration
def test_train_reads_an_old_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = yaml.safe_load((CONFIGS / "train" / "fncf_synthetic.yaml").read_text(encoding="utf-8"))
    config["trainer"]["callbacks"] = [{"class_path": "callbacks.delta_recorder.DeltaRecorder"}]
    config["model"]["class_path"] = "modules.FNCF"
    config["data"]["class_path"] = "datamodules.SyntheticRecommender"
    old = tmp_path / "config.yaml"
    old.write_text(yaml.safe_dump(config), encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        train.run(["fit", "--config", str(old), "--print_config"])
    assert not ended.value.code
    assert "class_path: fedleak.modules" in capsys.readouterr().out
