"""Maps of updates on manipulated and on real images, and classifiers that distinguish them (RAIFLE, figure 8)."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.separability import CLASSIFIERS, correctly_classified, embeddings
from fedleak.recordings.recording import Recording
from fedleak.reports.figures.maps import update_maps
from fedleak.tables.after.step import AfterStep
from fedleak.tables.cell_cache import CellRun


@dataclass(frozen=True, kw_only=True)
class UpdateMaps(AfterStep):
    """Separability of the updates of a training with a manipulation from those of the same training without it.

    ``accuracy`` is that of classifiers of updates, see `fedleak.evaluation.separability.correctly_classified`.

    Attributes:
        perplexities: perplexity of each t-SNE map, at most a quarter of the number of updates.
    """

    name = "update-maps"
    metrics = ("accuracy",)
    perplexities: Sequence[float] = (10.0, 50.0)

    def rows(self, run: CellRun, evaluation: Evaluation) -> Iterator[pd.DataFrame]:
        clients, sent = _updates(run.recording)
        honest_clients, honest = _updates(run.recording_of({"model.manipulation": None}))
        assert torch.equal(clients, honest_clients)
        setting = ", ".join(str(value) for value in run.setting.values())
        caption = f"{setting}: t-SNE of the updates, as in RAIFLE's figure 8. Guessing gives an accuracy of 0.5."
        # A quarter of the points, of which each client has two.
        largest_perplexity = len(clients) / 2
        perplexities = [min(perplexity, largest_perplexity) for perplexity in self.perplexities]
        maps = embeddings(honest, sent, perplexities, seed=run.seed)
        evaluation.figures.append(update_maps(maps, caption))
        for name in CLASSIFIERS:
            start = time.perf_counter()
            correct = correctly_classified(honest, sent, name, seed=run.seed)
            seconds = (time.perf_counter() - start) / len(correct)
            yield run.scores(f"updates-{name}", {"accuracy": correct}, victims=clients, items=1, seconds=seconds)


def _updates(recording: Recording) -> tuple[Tensor, Tensor]:
    """Numbers ``(V,)`` of the clients, ascending, and their updates ``(V, P)``."""
    clients = []
    updates = []
    for view in recording.views():
        clients.append(recording.truth(view)["clients"])
        updates.append(torch.cat([view.deltas[name].flatten(1) for name in sorted(view.deltas)], dim=1))
    numbers, order = torch.cat(clients).sort()
    return numbers, torch.cat(updates)[order]
