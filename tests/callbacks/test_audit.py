"""Attacks while training and at its end: what is logged, what is left, what is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger

from fedleak.attacks.composition.decaf import Decaf
from fedleak.attacks.interactions.baselines import Chance
from fedleak.attacks.recommendation.item_deltas import Direction
from fedleak.callbacks.audit import Audit
from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.core.errors import InputError
from fedleak.evaluation.scores import records
from fedleak.evaluation.stored_run import read_results
from tests import toys


def train(folder: Path, audit: Callback, *, validations: int = 0, record: bool = True) -> dict[str, list[float]]:
    """Trains four rounds and returns what was logged, in order."""
    logged: dict[str, list[float]] = {}

    class Kept(CSVLogger):
        def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
            for name, value in metrics.items():
                logged.setdefault(name, []).append(float(value))

    source = toys.data(users=24, items=120)
    validated = {"num_sanity_val_steps": 1, "val_check_interval": 2, "limit_val_batches": validations}
    callbacks = [DeltaRecorder(), audit] if record else [audit]
    trainer = toys.quiet_trainer(4, folder, *callbacks, logger=Kept(folder), **validated)
    trainer.fit(toys.model(source), datamodule=source)
    return logged


@pytest.mark.integration
def test_the_end_of_a_training_is_attacked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logged = train(tmp_path, Audit(attacks=[Direction(), Chance()]))
    assert "not closed" not in caplog.text
    results = {(r["attack"], r["metric"]): r for r in records(read_results(tmp_path).results)}
    assert logged["audit/direction/auc"] == [pytest.approx(results["direction", "auc"]["mean"])]
    assert results["direction", "auc"]["n"] == 24
    assert results["direction", "auc"]["low"] > 0.8  # of 24 clients like these
    low, high = (results["chance", "auc"][end] for end in ("low", "high"))
    assert low < 0.5 < high
    assert (tmp_path / "report.html").exists()


@pytest.mark.integration
@pytest.mark.usefixtures("without_figures")
def test_every_validation_attacks_so_many_victims_of_the_newest_round(tmp_path: Path) -> None:
    logged = train(tmp_path, Audit(attacks=[Direction()], each_validation=True, victims=5), validations=1)
    assert len(logged["audit/direction/auc"]) == 3
    assert min(logged["audit/direction/auc"]) > 0.9
    assert set(read_results(tmp_path).results["n"]) == {5}


class Stops(Callback):
    """Ends a training as a requeue does."""

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        raise SystemExit("elsewhere")


@pytest.mark.integration
def test_a_training_that_goes_on_elsewhere_is_not_attacked_yet(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="elsewhere"):
        toys.train(tmp_path, rounds=2, more=[Audit(attacks=[Direction()]), Stops()])
    assert not (tmp_path / "results.json").exists()


@pytest.mark.integration
def test_nothing_to_attack_with_and_nothing_to_attack_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="attacks"):
        Audit(attacks=[])
    with pytest.raises(InputError, match="DeltaRecorder"):
        train(tmp_path, Audit(attacks=[Direction()]), record=False)


@pytest.mark.integration
@pytest.mark.usefixtures("without_figures")
def test_draws_do_not_touch_the_training(tmp_path: Path) -> None:
    plain = toys.train(tmp_path / "plain", rounds=2)
    audited = toys.train(tmp_path / "audited", rounds=2, more=[Audit(attacks=[Chance()])])
    for name, value in plain.public_parameters().items():
        assert torch.equal(value, audited.public_parameters()[name])


@pytest.mark.integration
def test_where_nothing_can_be_scored_an_earlier_report_stays(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("earlier")
    with pytest.warns(UserWarning, match="no report"):
        train(tmp_path, Audit(attacks=[Decaf()]))
    assert (tmp_path / "report.html").read_text() == "earlier"
    assert not (tmp_path / "results.json").exists()


def test_attacks_are_taken_by_name_and_a_wrong_name_is_one_message() -> None:
    assert [type(attack) for attack in Audit(attacks=["direction", Chance()]).attacks] == [Direction, Chance]
    with pytest.raises(InputError, match="direction"):
        Audit(attacks=["directoin"])
