"""A step that a recording suffices for: the norm of each client's update."""

from collections.abc import Iterator

import pandas as pd
import torch

from fedleak.core.metric import POSITIVE, Metric
from fedleak.evaluation.steps import RecordingRun, RecordingStep


class UpdateNorms(RecordingStep):
    """L2 norm of each client's whole update."""

    name = "update-norms"
    metrics = (
        Metric("update-norm", "The update norm is the L2 norm of a client's whole update.", leak=False, span=POSITIVE),
    )

    def rows(self, run: RecordingRun) -> Iterator[pd.DataFrame]:
        for view in run.recording.views(victims_per_view=256):
            norms = torch.cat([value.flatten(1) for value in view.deltas.values()], dim=1).norm(dim=1)
            yield run.of_people(
                run.scores("updates", {"update-norm": norms}, victims=view.pseudonyms, round=view.round)
            )
