"""What the guardrail holds back, and what the server reads from what is sent, as an experiment."""

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attacks.base import Attack
from datamodules.deltas import Recording
from defenses.base import Defense
from evaluation.guardrail import Guardrail
from evaluation.runner import Evaluation
from evaluation.scores import concat
from experiments.options import as_number, check_names, plain_number
from experiments.ranking import RankingCell, RankingExperiment
from experiments.recorded_cell import of_people
from protocol.view import ServerView


@dataclass(frozen=True, kw_only=True)
class GuardrailExperiment(RankingExperiment):
    """A table with a guardrail: every client runs some attacks on itself, the server those of the cell.

    ``held-back`` is the share of the clients that send nothing; the attacks' metrics are over those that send.

    Attributes:
        guardrails: largest AUC at which a client sends; ``inf`` for no guardrail.
        own_attacks: names of the attacks that clients run on themselves.
    """

    guardrails: list[float] = field(default_factory=lambda: [math.inf])
    own_attacks: list[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "guardrails", [as_number("guardrail", value) for value in self.guardrails])
        check_names("attack", self.own_attacks, list(self.attacks))

    @property
    def cell(self) -> "type[GuardedCell]":
        return GuardedCell

    @property
    def axes(self) -> tuple[Collection[Any], ...]:
        return (*super().axes, self.guardrails)


@dataclass(frozen=True)
class GuardedCell(RankingCell[GuardrailExperiment]):
    """A cell of `GuardrailExperiment`."""

    limit: float

    @property
    def key(self) -> str:
        return f"{super().key}-guardrail{self.limit:g}"

    @property
    def setting(self) -> dict[str, Any]:
        return {**super().setting, "guardrail": plain_number(self.limit)}

    def evaluate(self, directory: Path) -> tuple[Evaluation, dict[str, float]]:
        """Trains, records and attacks; who held back has no score."""
        evaluation, seconds = super().evaluate(directory)
        evaluation.roc = {}
        recording = Recording(directory / "deltas")
        held = self._held_back(recording)
        silent = pd.MultiIndex.from_frame(held.loc[held["value"] > 0, ["round", "victim"]])
        scores = evaluation.scores
        scored = ~pd.MultiIndex.from_frame(scores[["round", "victim"]]).isin(silent)
        scores["value"] = scores["value"].where(scored, np.nan)
        evaluation.scores = concat([scores, of_people(held, recording)])
        return evaluation, seconds

    def defenses(self) -> list[Defense]:
        return [*super().defenses(), *guardrail(self.limit, self.table.make_attacks(self.table.own_attacks).values())]

    def _held_back(self, recording: Recording) -> pd.DataFrame:
        """By round and pseudonym, whether a client sent nothing."""
        return concat(
            [
                self.scores("guardrail", {"held-back": _is_zero(view)}, victims=view.pseudonyms, round=view.round)
                for view in recording.views(victims_per_view=256)
            ]
        )


def guardrail(limit: float, attacks: Collection[Attack]) -> list[Defense]:
    """The guardrail, or none for an infinite limit."""
    return [] if math.isinf(limit) else [Guardrail(limit=limit, attacks=list(attacks))]


def _is_zero(view: ServerView) -> Tensor:
    """``(V,)`` whether a client's whole delta is zero."""
    return torch.stack([~value.flatten(1).any(1) for value in view.deltas.values()]).all(0)
