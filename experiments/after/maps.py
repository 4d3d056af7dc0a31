"""t-SNE maps of messages and of raw texts."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from attacks.deanonymization.messages import layer_vectors, unit
from datamodules.devices.base import OwnedDataModule
from evaluation.message_selection import all_messages
from evaluation.runner import Evaluation
from experiments.after.raw_data import SETS_PER_USER, word_features
from experiments.after.step import AfterStep
from reports.identity_figures import map_figure

if TYPE_CHECKING:
    from experiments.cell_run import CellRun

_SHOWN = 8
"""Users in the maps."""


@dataclass(frozen=True, kw_only=True)
class Maps(AfterStep):
    """A figure of both for a few users (deanonymization, figure 11).

    Attributes:
        layers: whose deltas are taken.
    """

    name: ClassVar[str] = "maps"
    layers: tuple[str, ...] = ("lstm",)

    def __call__(self, run: "CellRun", evaluation: Evaluation) -> Evaluation:
        view, truth = all_messages(run.recording)
        _, data = run.build()
        assert isinstance(data, OwnedDataModule)
        users = truth["user"]
        shown = torch.unique(users)[:_SHOWN]
        inside = torch.isin(users, shown)
        vectors = unit(layer_vectors(view, self.layers))
        deltas = unit(vectors - vectors.mean(0))[inside]
        parts = [data.device_split.anonymous[int(user)][: 5 * SETS_PER_USER] for user in shown]
        raw = torch.from_numpy(word_features(data.examples.features[torch.cat(parts)]).toarray())
        owners = torch.cat([torch.full((len(part),), int(user)) for part, user in zip(parts, shown, strict=True)])
        places = {"deltas": (deltas, users[inside]), "raw examples": (raw, owners)}
        evaluation.figures.append(map_figure(places, run.cell.setting, seed=run.cell.seed))
        return evaluation
