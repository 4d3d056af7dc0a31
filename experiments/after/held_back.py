"""Step on updates that were held back."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from evaluation.runner import Evaluation
from evaluation.scores import concat
from experiments.after.step import AfterStep
from experiments.cell_training import CellRun
from protocol.ranges import check_fields
from protocol.view import RoundView


@dataclass(frozen=True, kw_only=True)
class HeldBack(AfterStep):
    """Share of clients with a zero delta; attacks are then scored on the other clients only.

    Label ``guardrail`` of the metric ``held-back``. The server cannot distinguish a client that holds its update back
    from one that learnt nothing, e.g. without clicks; the row without a guardrail shows how many of these there are.

    Attributes:
        of: ``clients`` for a value per client, with an interval over clients; ``trainings`` for a value per training.
    """

    name = "held-back"
    metrics = ("held-back",)
    of: Literal["clients", "trainings"] = "clients"

    def __post_init__(self) -> None:
        """Checks the values."""
        check_fields(self)

    def rows(self, run: CellRun, evaluation: Evaluation) -> Iterator[pd.DataFrame]:
        tables = [
            run.scores("guardrail", {"held-back": _is_zero(view)}, victims=view.pseudonyms, round=view.round)
            for view in run.recording.views(victims_per_view=256)
        ]
        held = run.of_people(concat(tables))
        zero = pd.MultiIndex.from_frame(held.loc[held["value"] > 0, ["round", "victim"]])
        scores = evaluation.scores
        scored = ~pd.MultiIndex.from_frame(scores[["round", "victim"]]).isin(zero)
        scores["value"] = scores["value"].where(scored, np.nan)
        evaluation.roc = {}  # sums of curves, from which single clients cannot be removed
        if self.of == "trainings":
            share, rounds = float(held["value"].mean()), len(run.recording.rounds)
            held = run.scores("guardrail", {"held-back": [share]}, victims=[run.cell.seed], round=rounds)
        yield held


def _is_zero(view: RoundView) -> Tensor:
    """``(V,)`` whether a client's whole delta is zero."""
    return torch.stack([~value.flatten(1).any(1) for value in view.deltas.values()]).all(0)
