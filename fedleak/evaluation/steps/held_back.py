"""Step on updates that were held back."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import pandas as pd
import torch
from torch import Tensor

from fedleak.core.view import RoundView
from fedleak.evaluation.scores import concat
from fedleak.evaluation.steps.step import RecordingRun, RecordingStep


@dataclass(frozen=True, kw_only=True)
class HeldBack(RecordingStep):
    """Share of clients with a zero delta; attacks are scored on the other clients only.

    Label ``guardrail`` of the metric ``held-back``. The server cannot distinguish a client that holds its update back
    from one that learnt nothing, e.g. without clicks; the row without a guardrail shows how many of these there are.

    Attributes:
        of: ``clients`` for a value per client, with an interval over clients; ``trainings`` for a value per training.
    """

    name = "held-back"
    metrics = ("held-back",)
    of: Literal["clients", "trainings"] = "clients"

    def unscored(self, view: RoundView) -> Tensor:
        """``(V,)`` whether a client's whole delta is zero."""
        return torch.stack([~value.flatten(1).any(1) for value in view.deltas.values()]).all(0)

    def rows(self, run: RecordingRun) -> Iterator[pd.DataFrame]:
        tables = []
        for view in run.recording.views(victims_per_view=256):
            share = {"held-back": self.unscored(view)}
            tables.append(run.scores("guardrail", share, victims=view.pseudonyms, round=view.round))
        by_client = concat(tables)
        if self.of == "clients":
            yield run.of_people(by_client)
        else:
            # One value of the training, whose number stands for a client's.
            of_training = {"held-back": [float(by_client["value"].mean())]}
            yield run.scores("guardrail", of_training, victims=[run.seed], round=len(run.recording.rounds))
