"""What is kept of a cell: its training, which other cells may share, and the file of its scores, with its stamp."""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from lightning import Trainer
from lightning.pytorch.callbacks import Callback

from fedleak.client.backbones import DEFAULT_BACKBONE, backbone_file
from fedleak.client.frozen_backbone import FrozenBackboneAlgorithm
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.core.errors import require
from fedleak.core.io.files import write_whole
from fedleak.core.places import PACKAGE
from fedleak.core.provenance import commit
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.steps import RecordingRun
from fedleak.evaluation.stored import DamagedError, evaluation_of, read_parts, write_evaluation
from fedleak.evaluation.stored_kinds import EvaluationParts
from fedleak.recordings.recording import Recording
from fedleak.tables.cell import QUIET, Cell, Stamp
from fedleak.tables.overrides import overridden
from fedleak.tables.parsed_training import Training
from fedleak.training.data import FederatedDataModule
from fedleak.training.federated import FederatedModule
from fedleak_recorder.format import only_writer


class StaleError(Exception):
    """File of a cell that cannot be reused; the message has the reason."""


@dataclass(frozen=True)
class Finished:
    """Finished cell.

    Attributes:
        evaluation: scores.
        seconds: seconds by stage, ``train`` and ``attack``.
        read_back: whether an earlier run finished it.
    """

    evaluation: Evaluation
    seconds: dict[str, float]
    read_back: bool = False


class _CellParts(EvaluationParts):
    """Entries of the file of a cell."""

    commit: str | None
    stamp: dict[str, Any]
    seconds: dict[str, float]


def write_cell(path: Path, stamp: Stamp, finished: Finished) -> None:
    """Writes the file of a finished cell."""
    more = {"commit": commit(), "stamp": dataclasses.asdict(stamp), "seconds": finished.seconds}
    write_evaluation(path, finished.evaluation, **more)


def read_cell(path: Path, stamp: Stamp) -> Finished | None:
    """Cell that an earlier run finished, None if there is none; `stamp` is that of a run now.

    Raises:
        StaleError: the file is damaged, or of another table, other data or other code.
    """
    try:
        parts = read_parts(path, _CellParts)
        evaluation = evaluation_of(parts, written_here=True)
    except FileNotFoundError:
        return None
    except DamagedError as error:
        raise StaleError(f"its {path.name} is {error}") from None
    changed = stamp.changed(parts.stamp)
    if changed:
        raise StaleError(f"its {' and '.join(changed)} changed since")
    return Finished(evaluation, parts.seconds, read_back=True)


@dataclass(frozen=True)
class CellRun(RecordingRun):
    """Recording of a cell with its finished training.

    Attributes:
        cell: cell of a table.
        stamp: what its numbers depend on.
        train_seconds: duration of the training.
    """

    cell: Cell
    stamp: Stamp
    train_seconds: float

    @classmethod
    def of(cls, cell: Cell, stamp: Stamp, train_seconds: float) -> "CellRun":
        """A trained cell."""
        return cls(recording_of(cell), cell.setting, cell.seed, cell, stamp, train_seconds)

    def build(self) -> tuple[FederatedModule, FederatedDataModule]:
        """Model before the training, and its data."""
        module, data, _ = _built_quietly(self.cell)
        module.build_for(data)
        return module, data

    def trained(self) -> tuple[FederatedModule, FederatedDataModule]:
        """Model and private parameters after the last round, and the data."""
        module, data, trainer = _built_quietly(self.cell)
        module.build_for(data)
        content = trainer.strategy.checkpoint_io.load_checkpoint(self.cell.folder / "last.ckpt")
        module.load_state_dict(content["state_dict"])
        module.on_load_checkpoint(content)
        data.secret = module.secret
        return module, data

    def recording_of(self, overrides: Mapping[str, Any]) -> Recording:
        """Recording of the same training with some keys changed; it is trained unless a cell has already done so."""
        other = dataclasses.replace(self.cell, config=overridden(self.cell.config, overrides))
        if other.folder == self.cell.folder:
            return self.recording
        with only_writer(other.folder, wait=True):  # another process may be training it
            trained(other, self.stamp)
        return recording_of(other)

    def train(
        self,
        overrides: Mapping[str, Any],
        *,
        callbacks: Sequence[Callback] = (),
        data: FederatedDataModule | None = None,
    ) -> tuple[FederatedModule, float]:
        """Trains the model again with its secret key, on one device, without a recorder; returns it and the seconds.

        The overrides are by dotted key of ``fedleak train``; `data` takes the place of the cell's.
        """
        on_one_device = {
            "trainer.callbacks": [],
            "trainer.devices": 1,
            "trainer.num_nodes": 1,
            "trainer.strategy": "auto",
        }
        config = overridden(self.cell.full_config, {**QUIET, **on_one_device, **overrides})
        module, cell_data, trainer = Training(config).build()
        assert isinstance(module, FederatedModule)
        module.build_for(cell_data)
        trained_module, _ = self.trained()
        module.secret = trained_module.secret
        trainer.callbacks.extend(callbacks)  # type: ignore[attr-defined]
        start = time.perf_counter()
        trainer.fit(module, datamodule=cell_data if data is None else data)
        return module, time.perf_counter() - start


def recording_of(cell: Cell) -> Recording:
    """Recording of a trained cell, with the folder of its clients' base network, if they have one."""
    recording = Recording(cell.folder / "deltas")
    learner = recording.manifest.learner or {}
    if learner.get("name") == PretrainedAlgorithm.name:
        path = Path(cell.training["model"]["init_args"]["path"])
        recording.base = None if path.suffix == ".json" else path
    elif learner.get("name") == FrozenBackboneAlgorithm.name:
        options = cell.training["model"]["init_args"]
        recording.base = backbone_file(options.get("backbone", DEFAULT_BACKBONE), options.get("path"))
    return recording


def trained(cell: Cell, stamp: Stamp) -> float:
    """Trains a cell, unless it is trained already; returns the seconds of the training.

    A training on one device runs in this process; for several, ``fedleak train`` is started.

    Args:
        cell: cell to train; this process is the only writer of its folder.
        stamp: its data, code and packages decide whether a finished training can be reused.
    """
    folder = cell.folder
    deltas = folder / "deltas"
    # A file that is written last marks a finished training, with what it depended on.
    mark = folder / "training.json"
    depends = {"data": stamp.data, "code": stamp.code, "packages": stamp.packages}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        finished = json.loads(mark.read_text(encoding="utf-8"))
        is_complete = (folder / "last.ckpt").is_file() and (deltas / "manifest.json").is_file()
        if finished["depends"] == depends and is_complete:
            return float(finished["seconds"])
    # The mark goes first: a killed training must not look finished. Then what is left of an earlier recording.
    mark.unlink(missing_ok=True)
    for old_file in (deltas / "manifest.json", *deltas.glob("journal*.jsonl")):
        old_file.unlink(missing_ok=True)
    start = time.perf_counter()
    module, data, trainer = _built_quietly(cell)
    if trainer.num_devices * trainer.num_nodes > 1:
        _in_processes(cell)
    else:
        trainer.fit(module, datamodule=data)
        trainer.save_checkpoint(folder / "last.ckpt")
    seconds = time.perf_counter() - start
    write_whole(mark, json.dumps({"depends": depends, "seconds": seconds}).encode())
    return seconds


def _built_quietly(cell: Cell) -> tuple[FederatedModule, FederatedDataModule, Trainer]:
    module, data, trainer = Training(overridden(cell.full_config, QUIET)).build()
    assert isinstance(module, FederatedModule)
    return module, data, trainer


def _in_processes(cell: Cell) -> None:
    """Trains a cell by ``fedleak train``, which starts one process per device."""
    # The last checkpoint is written by a callback, because the trainer is in another process.
    checkpoint = {"class_path": "ModelCheckpoint", "init_args": {"dirpath": str(cell.folder), "filename": "last"}}
    with_checkpoint = {
        **QUIET,
        "trainer.enable_checkpointing": True,
        "trainer.callbacks": [*cell.config["trainer"]["callbacks"], checkpoint],
    }
    config = overridden(cell.full_config, with_checkpoint)
    path = cell.folder / "table.yaml"
    (cell.folder / "last.ckpt").unlink(missing_ok=True)
    write_whole(path, yaml.safe_dump(config).encode())
    # The package may be on no path of a new process: it is started from the checkout without an installation.
    paths = [str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    # -P: no file of the current folder hides a package; the training finds it there all the same, last.
    program = [sys.executable, "-P", "-m", "fedleak", "train", "fit", "--config", str(path)]
    process = subprocess.run(program, env=environment, check=False)
    require(
        not process.returncode,
        f"the training of {cell.key} to succeed",
        f"exit status {process.returncode} of fedleak train",
        f"See its message above; its configuration is {path}.",
    )
