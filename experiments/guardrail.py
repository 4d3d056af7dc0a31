"""What the guardrail holds back, and what the server reads from what is sent, as an experiment."""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from attacks.base import Attack
from datamodules.deltas import Recording
from defenses.base import Defense
from defenses.guardrail import Guardrail
from experiments.base import Choice
from experiments.options import as_number, check_names, plain_number
from experiments.ranking import RankingCell, RankingExperiment
from reports.evaluation import Evaluation, with_people
from reports.results import VictimRow


@dataclass(frozen=True)
class GuardrailExperiment(RankingExperiment):
    """A table with a guardrail: every client runs some attacks on itself, the server those of the cell.

    ``held-back`` is the share of the clients that send nothing; the attacks' metrics are over those that send.

    Attributes:
        guardrails: largest AUC at which a client sends; ``inf`` for no guardrail.
        own_attacks: names of the attacks that clients run on themselves.
    """

    guardrails: list[float] = field(default_factory=lambda: [math.inf])
    own_attacks: list[str] = field(default_factory=list)

    @classmethod
    def parse(cls, content: dict[str, Any]) -> "RankingExperiment":
        """From a configuration."""
        limits = [as_number("guardrail", value) for value in content.get("guardrails", ["inf"])]
        check_names("attack", content["own_attacks"], list(content["attacks"]))
        return super().parse({**content, "guardrails": limits})

    def cells(self, choice: Choice) -> Iterator["GuardedCell"]:
        """See `PaperExperiment.cells`."""
        for cell in super().cells(choice):
            for limit in self.guardrails:
                yield GuardedCell(**vars(cell), limit=limit, own=tuple(self.own_attacks))


@dataclass(frozen=True)
class GuardedCell(RankingCell):
    """A cell of `GuardrailExperiment`."""

    limit: float
    own: tuple[str, ...]

    @property
    def key(self) -> str:
        """See `PaperCell.key`."""
        return f"{super().key}-guardrail{self.limit:g}"

    @property
    def setting(self) -> dict[str, Any]:
        """See `PaperCell.setting`."""
        return {**super().setting, "guardrail": plain_number(self.limit)}

    def evaluate(self, directory: Path) -> tuple[Evaluation, dict[str, float]]:
        """See `PaperCell.evaluate`; who held back has no score."""
        evaluation, seconds = super().evaluate(directory)
        evaluation.roc = {}
        recording = Recording(directory / "deltas")
        held = _held_back(recording)
        silent = {(number, victim) for (number, victim), value in held.items() if value}
        evaluation.rows = [
            dataclasses.replace(row, value=math.nan) if (row.round, row.victim) in silent else row
            for row in evaluation.rows
        ]
        own = [
            VictimRow("guardrail", self.setting, self.seed, number, victim, 0, 0, "held-back", float(value), 0.0)
            for (number, victim), value in held.items()
        ]
        evaluation.rows += with_people(own, recording)
        return evaluation, seconds

    def defenses(self) -> list[Defense]:
        """See `RankingCell.defenses`."""
        return [*super().defenses(), *guardrail(self.limit, self.experiment.make_attacks(self.own))]


def guardrail(limit: float, attacks: list[Attack]) -> list[Defense]:
    """The guardrail, or none for an infinite limit."""
    return [] if math.isinf(limit) else [Guardrail(limit=limit, attacks=attacks)]


def _held_back(recording: Recording) -> dict[tuple[int, int], bool]:
    """By round and pseudonym, whether a client sent nothing."""
    held: dict[tuple[int, int], bool] = {}
    for view in recording.views(victims_per_view=256):
        zero = torch.stack([~value.flatten(1).any(1) for value in view.deltas.values()]).all(0)
        held |= {(view.round, v): bool(z) for v, z in zip(view.pseudonyms.tolist(), zero.tolist(), strict=True)}
    return held
