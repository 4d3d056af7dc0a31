"""config.yaml lands in the run's folder, whole, and a second run replaces it."""

from pathlib import Path

import pytest
import yaml
from lightning import Trainer
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import CSVLogger

from fedleak.training.lightning.run_config import RunConfig
from tests.callbacks.toy import Toy


def start(folder: Path, *, max_steps: int) -> None:
    """Parses a command line and runs the set-up of a training, where the configuration is saved."""
    cli = LightningCLI(
        Toy,
        save_config_callback=RunConfig,
        save_config_kwargs={"save_to_log_dir": False},
        auto_configure_optimizers=False,
        run=False,
        args=[
            f"--trainer.default_root_dir={folder}",
            f"--trainer.max_steps={max_steps}",
            "--trainer.accelerator=cpu",
            "--trainer.logger=false",
            "--trainer.enable_checkpointing=false",
        ],
    )
    saver = next(c for c in cli.trainer.callbacks if isinstance(c, RunConfig))  # type: ignore[attr-defined]
    saver.setup(cli.trainer, cli.model, "fit")


def test_written_into_the_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    run = tmp_path / "runs" / "one"
    start(run, max_steps=3)
    assert yaml.safe_load((run / "config.yaml").read_text())["trainer"]["max_steps"] == 3
    start(run, max_steps=4)
    assert yaml.safe_load((run / "config.yaml").read_text())["trainer"]["max_steps"] == 4
    assert [path.name for path in run.iterdir()] == ["config.yaml"]
    assert list(elsewhere.iterdir()) == []


def test_loggers_show_the_same_keys(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path)
    trainer = Trainer(default_root_dir=tmp_path, logger=logger, accelerator="cpu", enable_checkpointing=False)
    parser = LightningArgumentParser()
    parser.add_argument("--model.local.learning_rate", type=float, default=0.5)
    RunConfig(parser, parser.parse_args([]), save_to_log_dir=False).save_config(trainer, Toy(), "fit")
    assert logger.experiment.hparams == {"model": {"local": {"learning_rate": 0.5}}}
