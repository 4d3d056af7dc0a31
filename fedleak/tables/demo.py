"""Demo: trainings with and without local DP, what the server infers from each, and one report."""

import contextlib
import functools
import io
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from fedleak.core.errors import require
from fedleak.core.places import CONFIGS
from fedleak.evaluation.answers import Answer, answers, leading
from fedleak.evaluation.audit_plan import AuditPlan
from fedleak.evaluation.auditing import AuditResult, run_audit
from fedleak.evaluation.registry import chosen_attacks
from fedleak.recordings.recording import Recording
from fedleak.reports.join import join_runs
from fedleak.reports.metric_words import number_in_words
from fedleak.reports.write_run import write_run
from fedleak.tables.overrides import overridden
from fedleak.tables.parsed_training import Training
from fedleak.tables.quiet import quieten
from fedleak.training.federated import FederatedModule

_BAR = 24
"""Width of the bar of a share of 1."""


@dataclass(frozen=True)
class DemoSystem:
    """A training of the demo, and the attacks on it.

    Attributes:
        name: name of its folder and of its results.
        config: configuration in configs/train.
        attacks: attacks and baselines to run.
        metric: metric that judges them.
        overrides: changes of the configuration.
        rounds: rounds to attack, None for all.
    """

    name: str
    config: str
    attacks: Sequence[str]
    metric: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    rounds: Sequence[int] | None = None


def systems() -> list[DemoSystem]:
    """Trainings of configs/demo.yaml: handwritten digits, the same with local DP, and clicks."""
    content = yaml.safe_load((CONFIGS / "demo.yaml").read_text(encoding="utf-8"))
    return [DemoSystem(name, **options) for name, options in content.items()]


@dataclass(frozen=True)
class Outcome:
    """A finished training with its audit.

    Attributes:
        system: what was trained.
        utility: measurements of the trained model by name, e.g. ``val/accuracy``.
        audit: scores of the attacks.
    """

    system: DemoSystem
    utility: dict[str, float]
    audit: AuditResult

    @functools.cached_property
    def answer(self) -> Answer:
        """The answer to the question of the system, by its metric."""
        return next(answer for answer in leading(answers(self.audit.results)) if answer.metric == self.system.metric)

    @property
    def attack(self) -> str:
        """Label of the attack that infers most."""
        assert self.answer.row is not None  # the attacks of the demo have results
        return str(self.answer.row["attack"])


def trained(system: DemoSystem, folder: Path) -> dict[str, float]:
    """Trains a system into a folder, with a progress bar; returns the last measurements of its utility.

    Raises:
        InputError: the folder holds something other than an earlier demo.
    """
    if folder.exists():
        way_out = "Give another folder: fedleak demo --out DIR."
        require((folder / "demo.json").is_file(), "a folder of an earlier demo, or none", str(folder), way_out)
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    # The mark is there before the training, so that a demo that was stopped can be run again.
    (folder / "demo.json").write_text(json.dumps({"system": system.name}))
    quieten()
    config = yaml.safe_load((CONFIGS / "train" / system.config).read_text(encoding="utf-8"))
    config = overridden(config, {**system.overrides, "trainer.default_root_dir": str(folder)})
    module, data, trainer = Training(config).build()
    assert isinstance(module, FederatedModule)
    trainer.fit(module, datamodule=data)
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


def run_system(system: DemoSystem, root: Path, seed: int = 0, key: bytes | None = None) -> Outcome:
    """Trains a system, attacks its recording, and writes its results below a folder."""
    start = time.perf_counter()
    folder = root / system.name
    utility = trained(system, folder)
    plan = AuditPlan(
        recording=Recording(folder / "deltas"),
        attacks=chosen_attacks(system.attacks),
        seed=seed,
        rounds=system.rounds,
    )
    result = run_audit(plan)
    with contextlib.redirect_stdout(io.StringIO()):  # the tables are in the report
        result.seconds = time.perf_counter() - start
        write_run(result, directory=folder, key=key)
    return Outcome(system, utility, result)


def write_joined(root: Path) -> Path:
    """Writes one page for all systems, and returns its path."""
    with contextlib.redirect_stdout(io.StringIO()):
        join_runs([root / system.name for system in systems()], root)
    return root / "report.html"


def first_client(outcome: Outcome) -> list[float]:
    """True shares of a client: the first of the recording, not a chosen one."""
    profiles = outcome.audit.evaluation.profiles
    return _profile(profiles, outcome.attack, int(profiles["victim"].min()))["true"].tolist()


def shares(outcome: Outcome, true: Sequence[float]) -> list[str]:
    """Lines with a client's true shares next to the inferred ones, of the attack that infers most.

    Trainings on the same data find the same client by its true shares: pseudonyms differ.
    """
    profiles = outcome.audit.evaluation.profiles
    profiles_by_client = [_profile(profiles, outcome.attack, victim) for victim in profiles["victim"].unique()]
    same_client = [profile for profile in profiles_by_client if profile["true"].tolist() == list(true)]
    rows = [f"  digit  {'true share':<{_BAR + 6}}  what the server infers"]
    for _, row in same_client[0].iterrows():
        rows.append(f"  {row['class']:>5}  {_bar(row['true'])}  {_bar(row['inferred'])}".rstrip())
    return rows


def _profile(profiles: pd.DataFrame, attack: str, victim: int) -> pd.DataFrame:
    return profiles[(profiles["attack"] == attack) & (profiles["victim"] == victim)].sort_values("class")


def _bar(share: float) -> str:
    filled = "█" * round(share * _BAR)
    return f"{share:4.2f}  {filled:<{_BAR}}"


def leak_and_accuracy(outcomes: Sequence[Outcome]) -> list[str]:
    """A line for each training: what the best attack and the best baseline get wrong, in words, and the accuracy."""
    rows = []
    for outcome in outcomes:
        answer = outcome.answer
        baseline = answer.baseline
        assert answer.row is not None  # configs/demo.yaml names attacks and a baseline
        assert baseline is not None
        rows.append(
            {
                "training": outcome.system.name,
                "from the update": number_in_words(answer.metric, float(answer.row["mean"])),
                "without it": number_in_words(answer.metric, baseline.value),
                "accuracy of the model": f"{outcome.utility['val/accuracy']:.2f}",
            }
        )
    return [f"  {line}" for line in pd.DataFrame(rows).to_string(index=False).splitlines()]
