"""Whose device sent this delta: deanonymization's tables 3 to 5 and figures 4 to 8 and 12, as experiments."""

import dataclasses
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from attacks.base import Attack, ServerView
from datamodules.deltas import Recording
from datamodules.messages import joined_view, message_users
from datamodules.owned import OwnedDataModule
from datamodules.owned_photos import PhotoDataModule
from datamodules.pooled import Pooled
from defenses.base import Defense
from experiments.base import Choice, PaperCell
from experiments.device_data import make_devices
from experiments.device_table import DeviceTable, Source, Variant
from experiments.identity_analyses import ANALYSES, INSTEAD, Material
from experiments.recorded_cell import RecordedCell, cell_trainer
from modules.federated import FederatedModule
from modules.local_hyperparameters import LocalTraining
from modules.nets.tagger import TaggerNetwork
from modules.nets.text import TextNetwork
from modules.registry import learner_from
from modules.tagger import FederatedTagger
from modules.text_model import FederatedText
from reports.anonymity import MODEL
from reports.evaluation import Evaluation
from reports.identities import evaluate_identities
from reports.identity_looks import Look, look_at
from reports.results import VictimRow

CENTRAL = "central-model"
"""Under which the quality of the model stands that was trained in one place."""
_TESTED_AT_ONCE = 256


@dataclass(frozen=True)
class DeanonymizationExperiment(DeviceTable):
    """Every data set with every variant, each trained and recorded once and then looked at."""

    def cells(self, choice: Choice) -> Iterator[PaperCell]:
        """See `PaperExperiment.cells`."""
        for data, variant, seed in itertools.product(self.names(choice), self.variants, range(choice.seeds)):
            if variant.only is None or data in variant.only:
                yield DeviceCell(self, data, choice, seed, self, variant)


@dataclass(frozen=True)
class DeviceCell(RecordedCell):
    """One training of anonymous and known devices, and every look at its recording."""

    table: DeviceTable
    variant: Variant

    @property
    def key(self) -> str:
        """See `PaperCell.key`."""
        words = "-".join(str(value) for value in self.variant.setting.values())
        return f"{self.data}-{words}-seed{self.seed}"

    @property
    def setting(self) -> dict[str, Any]:
        """See `PaperCell.setting`."""
        return {"data": self.data, **self.variant.setting}

    @property
    def rounds(self) -> int:
        """See `RecordedCell.rounds`."""
        return self._source.rounds

    @property
    def recorded(self) -> list[str] | None:
        """See `RecordedCell.recorded`."""
        layers = [*self._source.layers, *(layer for look in self.table.looks for layer in look.layers or ())]
        return [pattern for layer in dict.fromkeys(layers) for pattern in (layer, f"{layer}.*")]

    def build(self) -> tuple[FederatedModule, OwnedDataModule]:
        """See `RecordedCell.build`."""
        source = make_devices(
            self.data,
            {**self._source.data, "devices": self.variant.devices},
            root=self.choice.root,
            seed=self.seed,
            clients_per_round=self._source.clients_per_round,
            mitigation=None if self.variant.mitigation is None else self.variant.mitigation.in_data(),
            known_examples=self.variant.known_examples,
        )
        defenses = [] if self.variant.mitigation is None else self.variant.mitigation.defenses(source)
        return self._module(source, defenses), source

    def _module(self, source: OwnedDataModule, defenses: Sequence[Defense] = ()) -> FederatedText | FederatedTagger:
        common: dict[str, Any] = {
            "local": LocalTraining(**self.variant.local),
            "defenses": defenses,
            "seed": self.seed,
        }
        if isinstance(source, PhotoDataModule):
            network = TaggerNetwork(**self._source.network)
            return FederatedTagger(num_classes=source.num_classes, network=network, **common)
        return FederatedText(network=TextNetwork(**self._source.network), **common)

    def evaluate(self, directory: Path) -> tuple[Evaluation, dict[str, float]]:
        """Trains and records, then runs every attack at every look."""
        start = time.perf_counter()
        recording = Recording(self._record(directory))
        middle = time.perf_counter()
        found = Evaluation(rows=self._qualities(recording, directory))
        learner = learner_from(recording.manifest.learner)
        view = joined_view(recording, learner=learner)
        assert view.known is not None
        users = torch.cat([message_users(recording, view), message_users(recording, view.known)])
        for look in self.table.looks if INSTEAD not in self.table.analyses else ():
            self._look(look, view, users, found)
        self._analyse(view, users, found)
        return found, {"train": middle - start, "attack": time.perf_counter() - middle}

    def _look(self, look: Look, view: ServerView, users: torch.Tensor, found: Evaluation) -> None:
        seen, truth = look_at(view, users, look, seed=self.seed, roles=self._roles)
        attacks = self._attacks(look.layers or self._source.layers, look.attacks)
        setting = {**self.setting, **look.setting}
        scored = evaluate_identities(
            seen, truth, attacks, seed=self.seed, setting=setting, progress=self.choice.progress
        )
        found.rows += scored.rows
        found.missing |= scored.missing

    def _analyse(self, view: ServerView, users: torch.Tensor, found: Evaluation) -> None:
        _, source = self.build()
        layers = self._source.layers
        for name in self.table.analyses:
            material = Material(view, users, source, layers, self._attacks(layers), self.seed, self.setting)
            analysed = ANALYSES[name](material)
            found.rows += analysed.rows
            found.figures += analysed.figures

    def _attacks(self, layers: Sequence[str], names: Sequence[str] | None = None) -> list[Attack]:
        """The table's attacks, or those named, on some layers."""
        chosen = {
            name: {"layers": layers, **arguments} if _takes_layers(self.table.known_attacks[name]) else arguments
            for name, arguments in self.table.attacks.items()
            if names is None or name in names
        }
        return dataclasses.replace(self.table, attacks=chosen).make_attacks()

    @property
    def _roles(self) -> torch.Tensor:
        return self.build()[1].device_split.roles

    @property
    def _source(self) -> Source:
        return self.table.sources[self.data]

    def _qualities(self, recording: Recording, directory: Path) -> list[VictimRow]:
        """Of the global model before the last round, and of the central one where it is asked for."""
        _, source = self.build()
        module = self._module(source)
        module.load_state_dict(recording.model(recording.rounds[-1]), strict=False)
        rows = self._quality(MODEL, module, source)
        if self.variant.central is not None:
            central = self._module(source)
            cell_trainer(self.variant.central, directory).fit(central, datamodule=Pooled(source))
            rows += self._quality(CENTRAL, central, source)
        return rows

    def _quality(self, name: str, module: FederatedText | FederatedTagger, source: OwnedDataModule) -> list[VictimRow]:
        """A row for each user: the model's own metric on its test examples."""
        module.eval()
        rows = []
        for user, numbers in enumerate(source.device_split.test):
            if len(numbers):
                module.quality.reset()
                with torch.no_grad():
                    for part in torch.split(numbers, _TESTED_AT_ONCE):
                        module.update_metrics(source.fields(part))
                counted = self.rounds - 1, user, len(numbers), 0
                value = float(module.quality.compute())
                rows.append(VictimRow(name, self.setting, self.seed, *counted, module.metric, value, 0.0))
        return rows


def _takes_layers(kind: type[Attack]) -> bool:
    return "deltas" in kind.threat_model.needs
