"""Runs a cell: fit, record, evaluate, and what a table shows next to the scores."""

import contextlib
import dataclasses
import functools
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from lightning.pytorch.callbacks import Callback
from numpy.typing import ArrayLike
from tqdm import tqdm

from datamodules.base import FederatedDataModule
from datamodules.recordings.format import only_writer, write_whole
from datamodules.recordings.recording import Recording
from evaluation.evaluate import evaluate_recording, people_of
from evaluation.runner import Evaluation
from evaluation.scores import score_table, with_setting
from experiments.after import after_steps
from experiments.cell import QUIET, Cell
from experiments.cell_cache import Finished, StaleError, Stamp, read_cell, write_cell
from experiments.overrides import overridden
from experiments.parsed_training import Training
from modules.federated import FederatedModule
from protocol.errors import InputError


def run_cell(cell: Cell, stamp: Stamp, *, wait: bool = False) -> Finished:
    """Trains, records and attacks; what was finished before is read back, if nothing changed since.

    Args:
        cell: what to run.
        stamp: what the cell's numbers depend on.
        wait: while another process has the training's folder, such as another cell that compares with this one.
    """
    path = cell.out / "cells" / f"{cell.key}.json"
    try:
        earlier = read_cell(path, stamp)
    except StaleError as stale:
        tqdm.write(f"{cell.key}: run again, because {stale}", file=sys.stderr)
        earlier = None
    if earlier is not None:
        return earlier
    path.parent.mkdir(parents=True, exist_ok=True)
    with only_writer(cell.folder, wait=wait):
        seconds = trained(cell, stamp)
        start = time.perf_counter()
        evaluation = _evaluate(CellRun(cell, stamp, seconds))
        finished = Finished(evaluation, {"train": seconds, "attack": time.perf_counter() - start})
        write_cell(path, stamp, finished)
    return finished


def _evaluate(run: "CellRun") -> Evaluation:
    cell = run.cell
    evaluation = Evaluation()
    if cell.attacks:
        evaluation = evaluate_recording(
            run.recording,
            list(cell.make_attacks().values()),
            seed=cell.seed,
            setting=cell.setting,
            victims=cell.victims,
            limits=cell.limits(),
            rounds=cell.rounds.which,
            history=cell.rounds.history,
            messages=cell.selection(),
            progress=cell.progress,
        )
    if cell.rounds.separate:
        tables = evaluation.scores, evaluation.profiles
        evaluation.scores, evaluation.profiles = (
            with_setting(table, round=table["round"] + 1) if len(table) else table for table in tables
        )
    for step in after_steps(cell.after):
        evaluation = step(run, evaluation)
    return evaluation


@dataclass(frozen=True)
class CellRun:
    """A cell whose training is finished.

    Attributes:
        cell: the cell.
        stamp: what its numbers depend on.
        train_seconds: of the training.
    """

    cell: Cell
    stamp: Stamp
    train_seconds: float

    @property
    def folder(self) -> Path:
        """Of the training."""
        return self.cell.folder

    @functools.cached_property
    def recording(self) -> Recording:
        """What the server saw."""
        return Recording(self.folder / "deltas")

    def build(self) -> tuple[FederatedModule, FederatedDataModule]:
        """The model as it is before the training, and its data."""
        module, data, _ = _built_quietly(self.cell)
        assert isinstance(module, FederatedModule)
        module.build_for(data)
        return module, data

    def trained(self) -> tuple[FederatedModule, FederatedDataModule]:
        """The model, and the clients' private parameters, as they are after the last round, and its data."""
        module, data, trainer = _built_quietly(self.cell)
        assert isinstance(module, FederatedModule)
        module.build_for(data)
        content = trainer.strategy.checkpoint_io.load_checkpoint(self.folder / "last.ckpt")
        module.load_state_dict(content["state_dict"])
        module.on_load_checkpoint(content)
        return module, data

    def recording_of(self, overrides: Mapping[str, Any]) -> Recording:
        """Of the same training but for some keys; it is trained where no cell has done so.

        Args:
            overrides: by dotted key of ``train.py``.
        """
        other = dataclasses.replace(self.cell, config=overridden(self.cell.config, overrides))
        if other.folder == self.folder:
            return self.recording
        with only_writer(other.folder, wait=True):  # a cell of its own may be training it in another process
            trained(other, self.stamp)
        return Recording(other.folder / "deltas")

    def train(
        self,
        overrides: Mapping[str, Any],
        *,
        callbacks: Sequence[Callback] = (),
        data: FederatedDataModule | None = None,
    ) -> tuple[FederatedModule, float]:
        """Trains the model anew, on one device and without a recorder.

        Args:
            overrides: by dotted key of ``train.py``.
            callbacks: of this training alone.
            data: in place of the cell's.

        Returns:
            The trained model, and the seconds that it took.
        """
        alone = {"trainer.callbacks": [], "trainer.devices": 1, "trainer.num_nodes": 1, "trainer.strategy": "auto"}
        config = overridden(self.cell.full_config, {**QUIET, **alone, **overrides})
        module, own, trainer = Training(config).build()
        assert isinstance(module, FederatedModule)
        module.build_for(own)
        trainer.callbacks.extend(callbacks)  # type: ignore[attr-defined]
        start = time.perf_counter()
        trainer.fit(module, datamodule=own if data is None else data)
        return module, time.perf_counter() - start

    def scores(
        self, label: str, metrics: Mapping[str, ArrayLike], *, victims: ArrayLike, **options: Any
    ) -> pd.DataFrame:
        """Rows of this cell's seed and setting.

        Args:
            label: of the line.
            metrics: by name ``(V,)`` values.
            victims: ``(V,)`` numbers.
            options: further arguments of `score_table`; ``setting`` holds what is added to the cell's.
        """
        setting = {**self.cell.setting, **options.pop("setting", {})}
        return score_table(label, metrics, setting=setting, seed=self.cell.seed, victims=victims, **options)

    def of_people(self, scores: pd.DataFrame) -> pd.DataFrame:
        """Scores of pseudonyms, with the numbers that their people have under every seed; opens the truth."""
        people = people_of(self.recording)
        return scores.assign(person=[people.get(victim, victim) for victim in scores["victim"].tolist()])


def trained(cell: Cell, stamp: Stamp) -> float:
    """Trains a cell, unless its recording is there already; returns the seconds that it took.

    On one device the training runs in this process, else ``train.py`` is started, as many times as it needs.

    Args:
        cell: what to train; this process is the only writer of its folder.
        stamp: its parts on data, code and packages say whether a finished training is still good.
    """
    folder = cell.folder
    mark, depends = folder / "training.json", {"data": stamp.data, "code": stamp.code, "packages": stamp.packages}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        done = json.loads(mark.read_text(encoding="utf-8"))
        whole = (folder / "last.ckpt").is_file() and (folder / "deltas" / "manifest.json").is_file()
        if done["depends"] == depends and whole:
            return float(done["seconds"])
    mark.unlink(missing_ok=True)
    deltas = folder / "deltas"
    for old in (deltas / "manifest.json", *deltas.glob("journal*.jsonl")):
        old.unlink(missing_ok=True)
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


def _built_quietly(cell: Cell) -> Any:
    return Training(overridden(cell.full_config, QUIET)).build()


def _in_processes(cell: Cell) -> None:
    """Starts ``train.py``, which starts itself for every other device."""
    keep = {"class_path": "ModelCheckpoint", "init_args": {"dirpath": str(cell.folder), "filename": "last"}}
    callbacks = [*cell.config["trainer"]["callbacks"], keep]
    config = overridden(
        cell.full_config, {**QUIET, "trainer.enable_checkpointing": True, "trainer.callbacks": callbacks}
    )
    path = cell.folder / "table.yaml"
    (cell.folder / "last.ckpt").unlink(missing_ok=True)
    write_whole(path, yaml.safe_dump(config).encode())
    program = Path(__file__).parents[1] / "train.py"
    done = subprocess.run([sys.executable, str(program), "fit", "--config", str(path)], check=False)
    if done.returncode:
        raise InputError(
            expected=f"a training of {cell.key} that ends well",
            found=f"exit status {done.returncode} of train.py",
            way_out=f"Its own message stands above; its configuration is {path}.",
        )
