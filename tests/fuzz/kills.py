"""SIGKILL at random instants of whatever writes, and the same command again.

``make kills`` (``KILLS=200``, and a fifth more of a parent alone, whose workers must end) spreads so many kills over
the subjects and prints a line for each of them: trainings, tables, conversions, and those of `tests.fuzz.site_kills`;
where Flower is installed, also its gateway. `--only` takes parts of their names. What a journal names must be whole
right after each kill, and what the last run leaves must equal, bit for bit, what a run leaves that nobody killed. Exit
status 1 with any problem.
"""

import abc
import argparse
import contextlib
import hashlib
import importlib.util
import json
import logging
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml
from lightning import Callback, LightningModule, Trainer
from tqdm import tqdm

from fedleak.commands import program, train
from fedleak.core.seeding import KEY_VARIABLE
from fedleak.modules.learners.fncf import FNCF
from fedleak.modules.learners.image_classifier import FederatedClassifier
from fedleak.recordings.recording import Recording
from fedleak.training.federated import FederatedModule
from fedleak.training.lightning.unfinished_training import CHECKPOINT
from fedleak_recorder.journal import journals_in, read_journal
from tests.foreign_toys import write_dump

_PATIENCE = 600.0
"""Seconds after which a command that nobody kills counts as hanging."""
_KILLS_OF_ONE = 8
"""A command is killed so many times, then it may end."""
_LAST_WORKER = 60.0
"""Seconds in which workers must end after their parent, also those that are still importing."""


class Subject(abc.ABC):
    """A command that may be killed at any instant and started again.

    Args:
        folder: where it may write.
    """

    name: str
    share: float
    """Weight among the subjects that are chosen, by which the kills are divided."""
    alone = False
    """Whether the command's own process is killed and not its children, which must end by themselves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)

    @abc.abstractmethod
    def start(self, out: Path) -> int:
        """Runs the command, or runs it again; returns its exit status."""

    @abc.abstractmethod
    def outcome(self, out: Path) -> str:
        """Hash of everything that the finished command must leave."""

    def after_kill(self, out: Path) -> list[str]:
        """What is wrong right after a kill; a folder that the command would refuse to go on with is cleared."""
        return []


def damaged(deltas: Path) -> list[str]:
    """What the journals of a recording name and the disk does not hold."""
    lines = [line for path in journals_in(deltas) for line in read_journal(path).lines]
    whole = {line.file: hashlib.sha256((deltas / line.file).read_bytes()).hexdigest() for line in lines}
    return [f"{line.file} is damaged" for line in lines if whole[line.file] != line.sha256]


def _content(folder: Path) -> str:
    """Hash of the names and bytes of all files that are not hidden."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("."))
    return _digest({str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files})


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


class ModelHash(Callback):
    """Writes hashes of the final model, of the clients' private parameters and of the server's optimizer."""

    file = "model-hash.json"

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes the file."""
        if not trainer.is_global_zero:
            return
        assert isinstance(pl_module, FederatedModule)
        state = [str(s) for optimizer in trainer.optimizers for s in optimizer.state_dict()["state"].items()]
        values = {**pl_module.public_parameters(), **pl_module.private}
        hashes = {name: hashlib.sha256(v.numpy().tobytes()).hexdigest() for name, v in values.items()}
        content = json.dumps([hashes, state, trainer.global_step])
        (Path(trainer.default_root_dir) / self.file).write_text(content, encoding="utf-8")


class Training(Subject):
    """A training that saves a checkpoint in every round, and is resumed from the last one."""

    rounds = 8
    kind: type[FederatedModule]
    model: dict[str, Any]
    data: dict[str, Any]
    trainer: dict[str, Any] = {}  # noqa: RUF012
    """Further options of the Trainer."""

    def start(self, out: Path) -> int:
        """Trains from the last checkpoint on, or from the beginning."""
        path = self._config(out)
        last = self._last(out)
        return train.run(["fit", "--config", str(path), *(["--ckpt_path", str(last)] if last.exists() else [])])

    def _config(self, out: Path) -> Path:
        """Writes the configuration."""
        config = {
            "model": {"class_path": self.kind.__name__, "init_args": self.model},
            "data": self.data,
            "trainer": {
                **{"max_steps": self.rounds, "limit_val_batches": 0, "num_sanity_val_steps": 0, "accelerator": "cpu"},
                **{"devices": 1, "enable_model_summary": False, "enable_progress_bar": False},
                "default_root_dir": str(out),
                "callbacks": [
                    {"class_path": "DeltaRecorder"},
                    {"class_path": "tests.fuzz.kills.ModelHash"},
                    *self._checkpoints(out),
                ],
                **self.trainer,
            },
        }
        path = self.folder / f"{out.name}.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        return path

    def _checkpoints(self, out: Path) -> list[dict[str, Any]]:
        """The callback that makes checkpoints."""
        every_round = {"dirpath": str(out / "checkpoints"), "every_n_train_steps": 1, "save_last": True}
        return [{"class_path": "lightning.pytorch.callbacks.ModelCheckpoint", "init_args": every_round}]

    def after_kill(self, out: Path) -> list[str]:
        """Journalled files that are damaged; rounds without a checkpoint, which a training must not replace, go."""
        if not (out / "deltas/manifest.json").exists():
            return []
        problems = damaged(out / "deltas")
        if not self._last(out).exists():
            shutil.rmtree(out)
        elif any(read_journal(path).lines for path in journals_in(out / "deltas")):
            Recording(out / "deltas")
        return problems

    def outcome(self, out: Path) -> str:
        """The model, the clients' private parameters and the recording, less the name of the training."""
        hashes = json.loads((out / ModelHash.file).read_text(encoding="utf-8"))
        manifest = json.loads((out / "deltas/manifest.json").read_text(encoding="utf-8"))
        journal = [path.read_text(encoding="utf-8") for path in journals_in(out / "deltas")]
        return _digest([hashes, manifest | {"run": None}, journal, damaged(out / "deltas")])

    def _last(self, out: Path) -> Path:
        return out / "checkpoints/last.ckpt"


class Clicks(Training):
    """Collaborative filtering: clients with private vectors, under local DP."""

    name = "training, clicks under local DP"
    share = 0.2
    kind = FNCF
    model = {  # noqa: RUF012
        **{"user_dim": 8, "item_dim": 8, "hidden": [16, 8]},
        "local": {"optimizer": "adam", "learning_rate": 0.001, "epochs": 3},
        "defenses": [{"class_path": "LocalDP", "init_args": {"clip": 0.1, "epsilon": 10, "delta": 1e-6}}],
    }
    data = {  # noqa: RUF012
        "class_path": "SyntheticRecommender",
        "init_args": {"users": 80, "items": 300, "mean_interactions": 20.0, "clients_per_round": 24},
    }


class Digits(Training):
    """Classification of handwritten digits."""

    name = "training, digits"
    share = 0.15
    kind = FederatedClassifier
    model = {  # noqa: RUF012
        "network": {"name": "two-convolutions", "hidden": 16, "channels": 4},
        "local": {"optimizer": "sgd", "learning_rate": 0.1, "batch_size": 12},
    }
    data = {  # noqa: RUF012
        "class_path": "Digits",
        "init_args": {
            "split": {"scheme": "composition", "composition": "MNIST", "examples_per_client": 72},
            "auxiliary_per_class": 20,
        },
    }


class Defaults(Clicks):
    """The training with the default checkpoints, which goes on from what it keeps of its last rounds."""

    name = "training, clicks, with the default checkpoints"
    share = 0.2

    def _checkpoints(self, out: Path) -> list[dict[str, Any]]:
        return []

    def _last(self, out: Path) -> Path:
        return out / CHECKPOINT


class Launcher(Defaults):
    """The same on three ranks; only the process that started the others is killed."""

    name = "training, clicks, three ranks, the first alone"
    share = 0.1
    alone = True
    trainer = {"devices": 3, "strategy": "ddp"}  # noqa: RUF012

    def start(self, out: Path) -> int:
        """Becomes the first rank, which starts the others by its own command line."""
        path, last = self._config(out), self._last(out)
        resumed = ["--ckpt_path", str(last)] if last.exists() else []
        os.execv(sys.executable, [sys.executable, "train.py", "fit", "--config", str(path), *resumed])


class Table(Subject):
    """A table of three cells on generated data; finished cells are kept."""

    name = "table"
    share = 0.25
    jobs = 1

    def start(self, out: Path) -> int:
        """Fills the table."""
        path = self.folder / "table.yaml"
        noise = {"class_path": "RowNoise", "init_args": {"scale": "$"}}
        content = {
            **{"train": str(Path("configs/train/fncf_synthetic.yaml").resolve()), "metrics": ["auc"]},
            "set": {"data.users": 30, "data.clients_per_round": 10, "trainer.max_steps": 1},
            "axes": {"noise": {0: {}, "1, 2": {"model.defenses": [noise]}}},
            "attacks": {"direction": {}, "row-norm": {}, "interactions/chance": {}},
        }
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        return program.main(["reproduce", str(path), "--jobs", str(self.jobs), "--out", str(out)])

    def outcome(self, out: Path) -> str:
        """The results, less how long they took and which cells were read back."""
        content = json.loads((out / "results.json").read_text(encoding="utf-8"))
        return _digest([{k: v for k, v in r.items() if k != "seconds_per_victim"} for r in content["results"]])

    def after_kill(self, out: Path) -> list[str]:
        """Journalled files of the cells that are damaged."""
        return [line for folder in out.glob("trainings/*/deltas") for line in damaged(folder)]


class TableOfTwoJobs(Table):
    """The same, two cells at once."""

    name = "table, two jobs"
    share = 0.04
    jobs = 2


class ParentOfTwoJobs(TableOfTwoJobs):
    """The same; only the parent of the workers is killed, as where memory runs out."""

    name = "table, two jobs, the parent alone"
    share = 0.1
    alone = True


class Conversion(Subject):
    """A dump of 20 rounds; a folder that became a recording is whole."""

    name = "conversion"
    share = 0.16

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._dump = write_dump(folder / "dump")
        content = yaml.safe_load(self._dump.read_text(encoding="utf-8"))
        content["rounds"] = [content["rounds"][0] | {"round": number} for number in range(20)]
        self._dump.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")

    def start(self, out: Path) -> int:
        """Converts, unless that is done."""
        if (out / "manifest.json").exists():
            return 0
        return program.main(["convert", str(self._dump), "--out", str(out)])

    def outcome(self, out: Path) -> str:
        """All files."""
        return _content(out)


def subjects(only: str = "") -> list[type[Subject]]:
    """What is killed: a subject is a class, and one line here or in `SUBJECTS` of a module with more of them.

    Args:
        only: parts of names, separated by commas; empty for all.
    """
    from tests.fuzz import site_kills

    found: list[type[Subject]] = [
        Clicks,
        Digits,
        Defaults,
        Launcher,
        Table,
        TableOfTwoJobs,
        ParentOfTwoJobs,
        Conversion,
    ]
    found += site_kills.SUBJECTS
    if importlib.util.find_spec("flwr") is not None:  # in the environment of `make test-flower`
        from tests.fuzz import gateway_kills

        found += gateway_kills.SUBJECTS
    words = only.split(",")
    return [kind for kind in found if any(word in kind.name for word in words)]


@dataclass
class Report:
    """What the kills of one subject showed.

    Attributes:
        kills: how many.
        finished: how many runs came to their end.
        left: half-written files that finished runs left.
        problems: what went wrong, and how often.
    """

    kills: int = 0
    finished: int = 0
    left: int = 0
    problems: Counter[str] = field(default_factory=Counter)


def kill(subject: Subject, kills: int, *, seed: int, tick: Callable[[], object] = lambda: None) -> Report:
    """Kills a command again and again.

    Args:
        subject: the command.
        kills: how many kills.
        seed: of the instants.
        tick: called after each kill.
    """
    report, instants = Report(), random.Random(seed)
    whole = subject.folder / "whole"
    begin = time.monotonic()
    status, log = _run(subject, whole, _PATIENCE)
    span = time.monotonic() - begin
    if status != 0:
        report.problems[f"status {status} although nobody killed it: {log[-500:]}"] += 1
        return report
    right = subject.outcome(whole)
    while report.kills < kills:
        out = subject.folder / f"run{report.finished}"
        for _ in range(min(_KILLS_OF_ONE, kills - report.kills)):
            status, log = _run(subject, out, instants.uniform(0, span), report.problems)
            if status is not None:
                break
            report.kills += 1
            report.problems.update(subject.after_kill(out))
            tick()
        if status is None:
            status, log = _run(subject, out, _PATIENCE)
        if status != 0:
            report.problems[f"status {status} after kills: {log[-500:]}"] += 1
        elif subject.outcome(out) != right:
            report.problems["another outcome than that of a run that nobody killed"] += 1
        report.finished += 1
        report.left += sum(1 for _ in out.rglob(".*.tmp"))
    return report


def _run(subject: Subject, out: Path, seconds: float, problems: Counter[str] | None = None) -> tuple[int | None, str]:
    outlived = problems if subject.alone else None
    return in_process(lambda: subject.start(out), subject.folder / "log", seconds, outlived)


def in_process(
    action: Callable[[], int], log: Path, seconds: float, outlived: Counter[str] | None = None
) -> tuple[int | None, str]:
    """Runs a command in a process of its own, with its own children; kills them all after some seconds.

    With `outlived`, only the process itself is killed, and children are counted there that do not end soon.

    Returns:
        Its exit status, None where it had to be killed; and what it printed.
    """
    child = os.fork()
    if child == 0:
        _become(action, log)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), log.read_text(errors="replace")
        time.sleep(0.002)
    if outlived is not None:
        os.kill(child, signal.SIGKILL)
        end = time.monotonic() + _LAST_WORKER
        while _of_session(child) and time.monotonic() < end:
            time.sleep(0.1)
        if _of_session(child):
            outlived["workers that outlive their parent"] += 1
    with contextlib.suppress(ProcessLookupError):  # killed before it had a session of its own
        os.killpg(child, signal.SIGKILL)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None, log.read_text(errors="replace") if log.exists() else ""


def _of_session(leader: int) -> int:
    """Number of processes of a session that run."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            found += fields[3] == str(leader) and fields[0] != "Z"
    return found


def _become(action: Callable[[], int], log: Path) -> None:
    """Makes the forked process the command: a session of its own, output in a file."""
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(output, stream)
    # Whoever runs the tests may have put something else in their place.
    sys.stdout, sys.stderr = (os.fdopen(stream, "w", buffering=1, closefd=False) for stream in (1, 2))
    status = 1
    try:
        status = action()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException as error:
        os.write(2, repr(error).encode())
    finally:
        os._exit(status)


def main() -> int:
    """Kills every subject; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="subjects whose names hold one of these words, e.g. guard,watch")
    options = parser.parse_args()
    if not (chosen := subjects(options.only)):
        parser.error(f"no subject's name holds one of {options.only}: {', '.join(kind.name for kind in subjects())}")
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    os.environ.setdefault(KEY_VARIABLE, "5e" * 32)
    wrong = False
    with tempfile.TemporaryDirectory() as folder, tqdm(unit="kill") as bar:
        shares = sum(kind.share for kind in chosen)
        for number, kind in enumerate(chosen):
            kills = math.ceil(kind.share / shares * options.kills)
            report = kill(kind(Path(folder) / str(number)), kills, seed=options.seed + number, tick=bar.update)
            wrong |= bool(report.problems)
            bar.write(
                f"{kind.name}: {report.kills} kills, {report.finished} finished, {report.left} temporary files left, "
                f"problems: {dict(report.problems) or 'none'}",
                file=sys.stdout,
            )
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
