"""Clients that send nothing."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from evaluation.runner import Evaluation
from evaluation.scores import concat
from experiments.after.step import AfterStep
from protocol.view import ServerView

if TYPE_CHECKING:
    from experiments.cell_run import CellRun

_LABEL = "guardrail"


@dataclass(frozen=True, kw_only=True)
class HeldBack(AfterStep):
    """Share of the clients whose delta is zero, because they hold it back; attacks are scored on the others.

    Row ``guardrail`` of the metric ``held-back``. A client that learnt nothing, e.g. because it clicked nowhere, looks
    the same to the server and is counted: the row without a guardrail says how many these are.

    Attributes:
        of: ``clients``: a value for each client, whose interval is over clients; ``trainings``: one for each training.
    """

    name: ClassVar[str] = "held-back"
    metrics: ClassVar[tuple[str, ...]] = ("held-back",)
    of: Literal["clients", "trainings"] = "clients"

    def __post_init__(self) -> None:
        if self.of not in ("clients", "trainings"):
            raise ValueError(f"expected of: clients or trainings, got {self.of}")

    def __call__(self, run: "CellRun", evaluation: Evaluation) -> Evaluation:
        held = run.of_people(
            concat(
                [
                    run.scores(_LABEL, {"held-back": is_zero(view)}, victims=view.pseudonyms, round=view.round)
                    for view in run.recording.views(victims_per_view=256)
                ]
            )
        )
        silent = pd.MultiIndex.from_frame(held.loc[held["value"] > 0, ["round", "victim"]])
        scores = evaluation.scores
        scored = ~pd.MultiIndex.from_frame(scores[["round", "victim"]]).isin(silent)
        scores["value"] = scores["value"].where(scored, np.nan)
        evaluation.roc = {}  # curves of clients that send nothing cannot be taken out
        if self.of == "trainings":
            share, rounds = float(held["value"].mean()), len(run.recording.rounds)
            held = run.scores(_LABEL, {"held-back": [share]}, victims=[run.cell.seed], round=rounds)
        evaluation.scores = concat([scores, held])
        return evaluation


def is_zero(view: ServerView) -> Tensor:
    """``(V,)`` whether a client's whole delta is zero."""
    return torch.stack([~value.flatten(1).any(1) for value in view.deltas.values()]).all(0)
