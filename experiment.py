"""A paper's table as an experiment: its configuration, and the trainings and attacks that fill it."""

import dataclasses
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
import yaml
from lightning import Trainer

from attacks.base import ITEM_EMBEDDING, Attack
from attacks.registry import ATTACKS
from callbacks.delta_recorder import DeltaRecorder
from datamodules.base import FederatedDataModule
from datamodules.deltas import Recording
from datamodules.movielens import MovieLens
from datamodules.recommendation import RecommenderDataModule
from datamodules.recording_format import write_whole
from datamodules.steam import Steam
from datamodules.synthetic import SyntheticRecommender
from defenses.base import Defense
from defenses.local_dp import LocalDP
from defenses.update_l1 import UpdateL1
from errors import InputError
from modules.fncf import FNCF
from modules.raifle import Raifle
from modules.registry import learner_from
from reports.evaluation import Evaluation, evaluate
from reports.results import VictimRow

Scale = Literal["small", "paper"]
ALL_ATTACKS: dict[str, type[Attack]] = {**ATTACKS, Raifle.name: Raifle}
_DATA: dict[str, type[RecommenderDataModule]] = {
    "ml-100k": MovieLens,
    "steam-200k": Steam,
    "synthetic": SyntheticRecommender,
}


@dataclass(frozen=True)
class Cell:
    """One column of a table: what the clients do to protect themselves.

    Attributes:
        epsilon: privacy budget of local DP, infinite for none.
        defence: strength of IMIA's L1 regularisation, 0 for none.
    """

    epsilon: float = math.inf
    defence: float = 0.0

    def __post_init__(self) -> None:
        """Refuses impossible values; a budget written as ``inf`` in YAML is text."""
        object.__setattr__(self, "epsilon", _number("epsilon", self.epsilon))
        object.__setattr__(self, "defence", _number("defence", self.defence))
        if self.epsilon <= 0 or self.defence < 0:
            raise InputError(
                expected="epsilon > 0 and defence >= 0",
                found=f"epsilon {self.epsilon}, defence {self.defence}",
                way_out="Mend the cell in the configuration; epsilon: inf means no noise.",
            )

    def setting(self, data: str) -> dict[str, Any]:
        """The cell's keys in results.json."""
        epsilon: float | int | str = "inf" if math.isinf(self.epsilon) else self.epsilon
        epsilon = int(epsilon) if isinstance(epsilon, float) and epsilon.is_integer() else epsilon
        defence = int(self.defence) if float(self.defence).is_integer() else self.defence
        return {"data": data, "epsilon": epsilon, "defence": defence}

    def defenses(self, clip: float, delta: float) -> list[Defense]:
        """The clients' defences, as published: only the item embeddings are clipped and noised."""
        made: list[Defense] = [UpdateL1(strength=self.defence)] if self.defence else []
        if math.isfinite(self.epsilon):
            made.append(LocalDP(clip=clip, epsilon=self.epsilon, delta=delta, parameters=[ITEM_EMBEDDING]))
        return made


@dataclass(frozen=True)
class Experiment:
    """A table.

    Attributes:
        experiment: its name.
        metrics: the metrics it reports.
        cells: its columns.
        attacks: what is run, by name, with constructor arguments.
        data: data sets by folder name.
        limits: by slow attack, how many victims of each recording it attacks, drawn at random.
        small_clients: by data set, how many clients take part at scale ``small``; all where not named.
        clip: L2 norm to which the item update is clipped under local DP.
        delta: delta of local DP.
    """

    experiment: str
    metrics: list[str]
    cells: list[Cell]
    attacks: dict[str, dict[str, Any]]
    data: list[str] = field(default_factory=lambda: ["ml-100k", "steam-200k"])
    limits: dict[str, int] = field(default_factory=dict)
    small_clients: dict[str, int] = field(default_factory=dict)
    clip: float = 0.05
    delta: float = 1e-8

    @classmethod
    def read(cls, path: Path) -> "Experiment":
        """Reads a configuration of configs/paper.

        Raises:
            InputError: it is missing, no YAML, or has an unknown key, attack or data set.
        """
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
            made = cls(**{**content, "cells": [Cell(**cell) for cell in content["cells"]]})
        except (OSError, yaml.YAMLError, TypeError, KeyError) as error:
            raise InputError(
                expected="an experiment as in configs/paper", found=f"{error} in {path}", way_out="Mend that key."
            ) from None
        _check_names("attack", list(made.attacks), list(ALL_ATTACKS))
        _check_names("data set", made.data, list(_DATA))
        return made

    def choose(self, data: str | None) -> list[str]:
        """The data sets to run: all of the table's, or the one named."""
        if data is None:
            return self.data
        _check_names("data set", [data], self.data)
        return [data]

    def make_attacks(self) -> list[Attack]:
        """The attacks, built.

        Raises:
            InputError: an argument is unknown or impossible.
        """
        try:
            return [ALL_ATTACKS[name](**arguments) for name, arguments in self.attacks.items()]
        except (TypeError, ValueError) as error:
            raise InputError(
                expected="arguments that the attack takes", found=str(error), way_out="Mend `attacks` in the table."
            ) from None


def run_cell(
    experiment: Experiment,
    cell: Cell,
    *,
    data: str,
    root: str | None,
    seed: int,
    scale: Scale,
    victims: int | None,
    directory: Path,
) -> tuple[Evaluation, dict[str, float]]:
    """Trains and records one round, attacks the recording; a cell that was finished before is read back.

    Returns:
        The scores, and seconds by stage: ``train`` and ``attack``.
    """
    done = directory / "cell.json"
    if done.exists():
        content = json.loads(done.read_text(encoding="utf-8"))
        return _evaluation(content), content["seconds"]
    start = time.perf_counter()
    recorded = _train(experiment, cell, data, root, seed, scale, directory)
    middle = time.perf_counter()
    recording = Recording(recorded)
    evaluation = evaluate(
        recording,
        experiment.make_attacks(),
        seed=seed,
        setting=cell.setting(data),
        learner=learner_from(recording.manifest.learner),
        victims=victims,
        limits=experiment.limits,
    )
    seconds = {"train": middle - start, "attack": time.perf_counter() - middle}
    content = {
        "rows": [dataclasses.asdict(row) for row in evaluation.rows],
        "roc": {name: rate.tolist() for name, rate in evaluation.roc.items()},
        "missing": evaluation.missing,
        "seconds": seconds,
    }
    write_whole(done, json.dumps(content).encode())
    return evaluation, seconds


def make_data(name: str, **arguments: Any) -> FederatedDataModule:
    """A data set by its folder name."""
    return _DATA[name](**arguments)


def _train(
    experiment: Experiment, cell: Cell, data: str, root: str | None, seed: int, scale: Scale, directory: Path
) -> Path:
    clients: int | float = experiment.small_clients.get(data, 1.0) if scale == "small" else 1.0
    # The table attacks every interaction, so none is held out.
    source = _DATA[data](root=root, clients_per_round=clients, seed=seed, holdout=False)
    module = FNCF(
        num_items=source.num_items,
        num_clients=source.num_clients,
        defenses=cell.defenses(experiment.clip, experiment.delta),
        seed=seed,
    )
    recorded = directory / "deltas"
    if (recorded / "manifest.json").exists():
        (recorded / "manifest.json").unlink()
        (recorded / "journal.jsonl").unlink(missing_ok=True)
    trainer = Trainer(
        max_steps=1,
        accelerator="auto",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        use_distributed_sampler=False,
        default_root_dir=directory,
        callbacks=[DeltaRecorder(directory=str(recorded), parameters=[ITEM_EMBEDDING])],
    )
    trainer.fit(module, datamodule=source)
    return recorded


def _evaluation(content: Mapping[str, Any]) -> Evaluation:
    rows = [VictimRow(**row) for row in content["rows"]]
    return Evaluation(rows, {name: torch.tensor(rate) for name, rate in content["roc"].items()}, content["missing"])


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(expected=f"a number as {name}", found=repr(value), way_out="Mend the cell.") from None


def _check_names(kind: str, given: list[str], known: list[str]) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise InputError(
            expected=f"{kind}s among {', '.join(known)}", found=unknown[0], way_out=f"Mend the name of the {kind}."
        )
