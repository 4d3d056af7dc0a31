"""No training configuration may rot: each one is parsed by the command line that reads it."""

from pathlib import Path

import pytest
import yaml

import train

CONFIGS = Path(__file__).resolve().parent.parent / "configs"


def parsed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *args: str) -> dict[str, object]:
    """The whole configuration that ``train.py fit ARGS`` would run with; nothing is run."""
    monkeypatch.setattr("sys.argv", ["train.py"])
    with pytest.raises(SystemExit) as exit_status:
        train.main(["fit", *args, "--print_config"])
    shown = capsys.readouterr()
    assert exit_status.value.code in (0, None), shown.err
    configuration = yaml.safe_load(shown.out)
    assert isinstance(configuration, dict)
    return configuration


@pytest.mark.parametrize("path", sorted((CONFIGS / "train").glob("*.yaml")), ids=lambda path: path.stem)
def test_training_configuration(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    configuration = parsed(capsys, monkeypatch, "--config", str(path))
    assert configuration["trainer"]["max_steps"] > 0  # type: ignore[index]
    assert configuration["trainer"]["default_root_dir"] == f"runs/{path.stem}"  # type: ignore[index]


@pytest.mark.parametrize("path", sorted((CONFIGS / "trainer").glob("*.yaml")), ids=lambda path: path.stem)
def test_trainer_configuration_on_top_of_a_training(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = ("--config", str(CONFIGS / "train" / "fncf_synthetic.yaml"))
    plain = parsed(capsys, monkeypatch, *base)
    changed = parsed(capsys, monkeypatch, *base, "--config", str(path))
    assert changed != plain
    names = [callback["class_path"] for callback in changed["trainer"]["callbacks"]]  # type: ignore[index]
    assert "callbacks.delta_recorder.DeltaRecorder" in names


def test_an_unknown_key_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["train.py"])
    config = str(CONFIGS / "train" / "fncf_synthetic.yaml")
    with pytest.raises(SystemExit) as exit_status:
        train.main(["fit", "--config", config, "--model.init_args.not_there", "1", "--print_config"])
    assert exit_status.value.code == 2
    assert "not_there" in capsys.readouterr().err


def test_what_a_constructor_refuses_is_one_message(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["train.py"])
    config = str(CONFIGS / "train" / "fncf_synthetic.yaml")
    assert train.run(["fit", "--config", config, "--data.init_args.negatives_per_positive", "0"]) == 2
    message = capsys.readouterr().err
    assert "train.py: expected negatives_per_positive" in message
    assert "Traceback" not in message
