"""What a person gets wrong on train.py's command line is one line and status 2; a defect keeps its traceback."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import LightningModule, Trainer
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.fabric.utilities.exceptions import MisconfigurationException

from fedleak.commands import train
from fedleak.core.errors import InputError
from fedleak.modules.learners.fncf import FNCF
from fedleak.training.lightning.checkpoint_io import CheckedCheckpointIO
from fedleak.training.lightning.error_reports import refusal_in
from tests import toys
from tests.places import CONFIGS

CONFIG = str(CONFIGS / "train/fncf_synthetic.yaml")
SMALL = ("--config", CONFIG, "--data.init_args.users", "12", "--trainer.max_steps", "1", "--trainer.accelerator", "cpu")
LineOf = Callable[..., str]


@pytest.fixture
def line_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> LineOf:
    """Runs train.py, which must end with status 2, and gives the one line that it says."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> str:
        try:
            status: Any = train.run(words)
        except SystemExit as left:
            status = left.code
        (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("fedleak: ")]
        assert status == 2
        return line

    return run


def begins(words: tuple[str, ...], expected: str) -> Any:
    """A case of which only the training itself can say that it cannot be."""
    return pytest.param(words, expected, marks=pytest.mark.integration)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--model.init_args.learning_rte", "0.1"), "Did you mean model.local.learning_rate or"),
        (("--trainer.max_stesp", "3"), "Did you mean trainer.max_steps or"),
        (("--modle.local.epochs", "3"), "Did you mean model.local.epochs?"),
        (("--model.local.lr", "3"), "found model.local.lr. Did you mean model.local.learning_rate?"),
        (("--model.local.optimizer", "adamm"), "sgd, adam, adadelta; found adamm. Did you mean adam?"),
        (("--model.local.learning_rate", "-1"), "expected model.local.learning_rate above 0; found -1"),
        (("--model.local.epochs", "0"), "expected model.local.epochs above 0; found 0. The default is 20."),
        (("--model.top_k", "5.5"), "expected model.top_k as a whole number above 0; found 5.5"),
        (("--model.hidden", "64"), "expected model.hidden as a list; found 64. The default is [128, 64, 32]."),
        (("--model.local", "3"), "expected model.local as values by name; found 3"),
        (("--model.defenses", "LocalDp"), "name or path of a Defense; found LocalDp. Did you mean LocalDP?"),
        (("--model.defenses", "LocalDP"), "expected model.defenses as a list; found LocalDP. Write [LocalDP]"),
        (("--model.defenses", "[LocalDP]"), "expected clip and epsilon and delta, which LocalDP needs"),
        (("--model.defenses+=LocalDP", "--model.defenses.clp=1"), "Did you mean model.defenses[0].clip?"),
        (("--trainer.callbacks+=EarlyStoping",), "found EarlyStoping. Did you mean EarlyStopping?"),
        (("--trainer.callbacks=EarlyStopping", "--trainer.callbacks.patienc=5"), "Did you mean trainer.callbacks"),
        (("--trainer.logger=CSVLogger", "--trainer.logger.nam=3"), "Did you mean trainer.logger.name?"),
        (("--trainer.precision", "8"), "expected trainer.precision as one of 64, 32, 16, "),
        (("--trainer.max_steps",), "expected a value after --trainer.max_steps; found none"),
        (("--model", "my.Thing"), "name or path of a LightningModule; found my.Thing. "),
        (("more.yaml",), "expected options, which begin with two dashes; found more.yaml. Write --config more.yaml."),
        (("--data.nonsense", "3"), "found data.nonsense. Known: users, items, "),
        (
            ("--model.defenses", "[{class_path: LocalDP, init_args: {epsilonn: 5}}]"),
            "Did you mean model.defenses[0].epsilon?",
        ),
        (("--model", "FNFC"), "FNFC. Did you mean FNCF?"),
        (("--model.init_args.user_dim", "-1"), "expected model.user_dim above 0; found -1. The default is 64."),
        (("--model.init_args.hidden", "[0]"), "expected model.hidden[0] above 0; found 0"),
        (("--data.init_args.num_workers", "-1"), "expected data.num_workers of at least 0; found -1"),
        (("--data.init_args.negatives_per_positive", "0"), "expected negatives_per_positive"),
        (("--trainer.accelerator", "tpu"), "torch_xla"),
        (("--trainer.devices", "0"), "is not a valid input using cpu accelerator"),
        (("--trainer.max_steps", "-5"), "`max_steps` must be a non-negative integer"),
        (("--trainer.max_steps", "-1"), "expected a number of rounds"),
        (("--trainer.strategy", "ddp_spawn"), "Set --trainer.strategy ddp"),
        (("--trainer.val_check_interval", "0"), "expected trainer.val_check_interval above 0"),
        (("--ckpt_path", "/nonexistent"), "expected a checkpoint at /nonexistent; found no such file"),
        begins(("--trainer.gradient_clip_val", "1.0"), "not supported for manual optimization"),
        begins(("--trainer.default_root_dir", "/dev/null/run"), "/dev/null/run: not a directory"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_option_is_one_line(words: tuple[str, ...], expected: str, line_of: LineOf) -> None:
    assert expected in line_of("fit", *SMALL, *words)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("fit",), "expected a model and data; found no model and no data. Give a configuration, e.g. --config"),
        (("fit", "--model", "Pretrained", "--data", "Digits"), "expected path, which Pretrained needs; found none"),
        (("fit", "--model.local.epochs", "3"), "expected the class of model before its arguments"),
        (("train",), "expected a command of fedleak train: fit or validate; found train"),
        ((), "found none. E.g. fedleak train fit --config"),
        (("--config", CONFIG), f"found none. E.g. fedleak train fit --config {CONFIG}"),
        (("fit", "--config", "nope.yaml"), "expected a configuration file at nope.yaml; found no such file. An exam"),
        (("fit", "--config", "fncf_syntetic.yaml"), "train/fncf_synthetic.yaml"),
        (("fit", "--config", "."), "expected a configuration file at .; found a folder"),
    ],
)
def test_what_is_missing_is_named_with_the_way_out(words: tuple[str, ...], expected: str, line_of: LineOf) -> None:
    assert expected in line_of(*words)


def test_the_message_shows_no_word_of_the_parser(line_of: LineOf) -> None:
    line = line_of("fit", *SMALL, "--model.local.learning_rate", "-1")
    for word in ("Parser key", "class_path", "restriction", "typing", "<class"):
        assert word not in line


def test_a_command_that_there_is_not_is_one_line(line_of: LineOf) -> None:
    assert "found test. `fedleak train validate` measures a checkpoint" in line_of("test", *SMALL)


@pytest.mark.integration
def test_data_that_a_model_cannot_use_are_one_line(line_of: LineOf) -> None:
    words = ("fit", "--model", "FederatedClassifier", "--data", "SyntheticRanking", "--trainer.max_steps", "1")
    assert "data with num_classes, which FederatedClassifier needs; found none in SyntheticRanking" in line_of(*words)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"model: \xff\xfe\n", "UTF-8"),
        (b"trainer: 5\n", "wrong.yaml; found 5. Write one value per line below `trainer:`"),
        (b"a: " + b"[" * 1000, "YAML"),
        (b"a:\n\tb: 1\n", "wrong.yaml; found while scanning"),
        (b"\0\0", "wrong.yaml; found unacceptable character"),
        (b"- a\n", "expected a mapping of keys to values in"),
        (b"model: {class_path: FNCF, init_args: {local: {lr: 0.1}}}", "Did you mean model.local.learning_rate?"),
        (b"model: {class_path: FNCF, init_args: {hiddn: [3]}}", "Did you mean model.hidden?"),
        (b"modle: {class_path: FNCF}", "Did you mean model.class_path?"),
        (b"data: {class_path: MovieLens, init_args: {split: {scheme: iid}}}", "Known: variant, download, "),
    ],
)
def test_a_wrong_configuration_is_one_line(content: bytes, expected: str, tmp_path: Path, line_of: LineOf) -> None:
    (tmp_path / "wrong.yaml").write_bytes(content)
    assert expected in line_of("fit", *SMALL, "--config", str(tmp_path / "wrong.yaml"))


def test_a_defect_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def defect(*_: object) -> None:
        raise KeyError("tokens")

    monkeypatch.setattr("fedleak.tables.training.main", defect)
    with pytest.raises(KeyError, match="tokens"):
        train.run([])


def caught(raised: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise raised from cause
    except BaseException as error:
        return error


@pytest.mark.integration
def test_what_is_refused_and_what_is_a_defect() -> None:
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    with pytest.raises(MisconfigurationException) as refused:
        Trainer(max_steps=-7, logger=False)
    wrapped = refusal_in(caught(ValueError("does not validate"), refused.value))
    assert wrapped is not None
    assert "max_steps" in str(wrapped)
    with pytest.raises(TypeError) as wrong:
        trainer.fit(5)  # type: ignore[arg-type]
    assert refusal_in(wrong.value) is None
    assert refusal_in(caught(ValueError("ours"))) is None
    assert refusal_in(caught(AttributeError("ours"))) is None
    full = refusal_in(caught(OSError(28, "No space left on device", "run/deltas")))
    assert full is not None
    assert "run/deltas; found no space left on device" in str(full)
    assert refusal_in(caught(OSError("no number"))) is None
    assert refusal_in(caught(MemoryError())) is not None


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FNCF]:
    folder = tmp_path_factory.mktemp("run")
    module = toys.train(folder, rounds=1)
    return folder / "last.ckpt", module


def damaged(kind: str, path: Path, folder: Path) -> Path:
    content, made = path.read_bytes(), folder / f"{kind}.ckpt"
    if kind in ("empty", "cut", "flipped"):
        half = len(content) // 2
        flipped = content[:half] + bytes([content[half] ^ 255]) + content[half + 1 :]
        made.write_bytes({"empty": b"", "cut": content[:half], "flipped": flipped}[kind])
        return made
    state = TorchCheckpointIO().load_checkpoint(path, weights_only=True)
    if kind == "another model":
        state["state_dict"]["item_embedding.weight"] = torch.zeros(2, 3)
    elif kind == "no optimizer":
        del state["optimizer_states"]
    elif kind == "other clients":
        state["private"] = {}
    else:
        state["more"] = Path
    TorchCheckpointIO().save_checkpoint(state if kind != "foreign" else {"weights": 1}, made)
    return made


@pytest.mark.integration
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("empty", "a whole checkpoint"),
        ("cut", "a whole checkpoint"),
        ("flipped", "a whole checkpoint"),
        ("foreign", "found a file without state_dict"),
        ("no optimizer", "found a file without optimizer_states"),
        ("another model", r"item_embedding.weight of shape \(2, 3\)"),
        ("other clients", "found user_embedding missing"),
        ("code", "objects other than tensors, which are not loaded"),
    ],
)
def test_a_checkpoint_is_refused(kind: str, expected: str, checkpoint: tuple[Path, FNCF], tmp_path: Path) -> None:
    path, module = checkpoint
    reader = CheckedCheckpointIO(module, resume=True)
    assert reader.load_checkpoint(path)["global_step"] == 1
    with pytest.raises(InputError, match=expected):
        reader.load_checkpoint(damaged(kind, path, tmp_path))


def test_a_model_of_another_kind_needs_no_private_table(tmp_path: Path) -> None:
    TorchCheckpointIO().save_checkpoint({"state_dict": {}, "global_step": 3}, tmp_path / "plain.ckpt")
    assert CheckedCheckpointIO(LightningModule(), resume=False).load_checkpoint(tmp_path / "plain.ckpt")
