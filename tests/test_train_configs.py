"""No training configuration may rot: each one is parsed by the command line that reads it."""

from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.callbacks import ProgressBar

from fedleak.core.errors import InputError
from fedleak.tables import training
from fedleak.training.lightning.round_progress import RoundProgress
from tests.command_lines import training_of
from tests.places import CONFIGS


@pytest.mark.parametrize("path", sorted((CONFIGS / "train").glob("*.yaml")), ids=lambda path: path.stem)
def test_training_configuration(path: Path) -> None:
    configuration = training_of("fit", "--config", str(path))
    model, data = (configuration[part]["init_args"] for part in ("model", "data"))
    ends_itself = model.get("probing") or data.get("item_sets")
    assert configuration["trainer"]["max_steps"] > 0 or ends_itself
    assert configuration["trainer"]["default_root_dir"] == f"runs/{path.stem}"


BASE = ("--config", str(CONFIGS / "train" / "fncf_synthetic.yaml"))


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    return training_of("fit", *BASE)


@pytest.mark.parametrize("path", sorted((CONFIGS / "trainer").glob("*.yaml")), ids=lambda path: path.stem)
def test_trainer_configuration_on_top_of_a_training(path: Path, plain: dict[str, Any]) -> None:
    changed = training_of("fit", *BASE, "--config", str(path))
    assert changed != plain
    names = [callback["class_path"] for callback in changed["trainer"]["callbacks"]]
    assert "DeltaRecorder" in {name.rpartition(".")[2] for name in names}


def test_what_no_configuration_says() -> None:
    configuration = training_of("fit", "--model", "FNCF", "--data", "SyntheticRecommender")
    trainer = configuration["trainer"]
    expected = {"num_sanity_val_steps": 0, "log_every_n_steps": 1, "accelerator": "auto", "devices": 1}
    assert {name: trainer[name] for name in expected} == expected
    assert configuration["seed_everything"] == 0
    assert trainer["default_root_dir"] == "runs/unnamed"


@pytest.mark.parametrize("more", [[], ["--trainer.enable_progress_bar", "false"]])
def test_one_progress_bar_or_none(more: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["train.py"])
    monkeypatch.setattr(training.FederatedCLI, "_run_subcommand", lambda *_: None)
    given = ["fit", "--config", str(CONFIGS / "train" / "fncf_synthetic.yaml"), "--trainer.accelerator", "cpu", *more]
    callbacks = training.main(given).trainer.callbacks  # type: ignore[attr-defined]
    assert [type(one) for one in callbacks if isinstance(one, ProgressBar)] == ([] if more else [RoundProgress])


@pytest.mark.parametrize("data", ["MovieLens", "LETOR", "MNIST", "Blog"])
def test_nothing_is_read_before_the_training_starts(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["train.py"])
    monkeypatch.setattr(training.FederatedCLI, "_run_subcommand", lambda *_: None)
    model = {"MovieLens": "FNCF", "LETOR": "FPDGD", "MNIST": "FederatedClassifier", "Blog": "FederatedText"}[data]
    given = ["fit", "--model", model, "--data", data, "--data.root", "/nowhere", "--trainer.max_steps", "1"]
    cli = training.main([*given, "--trainer.accelerator", "cpu"])
    with pytest.raises(InputError, match="/nowhere"):
        cli.datamodule.setup("fit")
