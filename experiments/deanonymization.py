"""Whose device sent this delta: deanonymization's tables 3 to 5 and figures 4 to 8 and 12, as experiments."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pandas as pd
import torch

from attacks.base import Attack
from datamodules.deltas import Recording
from datamodules.messages import joined_view
from datamodules.owned import OwnedDataModule
from datamodules.owned_photos import PhotoDataModule
from datamodules.pooled import Pooled
from defenses.base import Defense
from evaluation.evaluate import attack_messages
from evaluation.message_selection import MessageSelection, message_truth, selected
from evaluation.runner import Evaluation, joined
from evaluation.scores import concat
from experiments.base import Choice, PaperCell, PaperExperiment
from experiments.device_data import DEVICE_DATA, Mitigated, make_devices
from experiments.global_model import RECORDED
from experiments.identity_analyses import ANALYSES, INSTEAD, Material
from experiments.options import check_names
from experiments.recorded_cell import RecordedCell, cell_trainer
from modules.federated import FederatedModule
from modules.local_hyperparameters import LocalTraining
from modules.nets.tagger import TaggerNetwork
from modules.nets.text import TextNetwork
from modules.registry import learner_from
from modules.tagger import FederatedTagger
from modules.text_model import FederatedText
from protocol.errors import InputError

CENTRAL = "central-model"
"""Under which the quality of the model stands that was trained in one place."""
_TESTED_AT_ONCE = 256


@dataclass(frozen=True, kw_only=True)
class Source:
    """A data set's devices and what they learn.

    Attributes:
        rounds: of training, all recorded.
        layers: whose deltas are recorded, and attacked where nothing else is said.
        data: options of the data set.
        network: options of the network.
        clients_per_round: share of the devices that take part in a round; the paper's C is 0.1.
    """

    rounds: int
    layers: list[str]
    data: dict[str, Any] = field(default_factory=dict)
    network: dict[str, Any] = field(default_factory=dict)
    clients_per_round: float = 0.1


@dataclass(frozen=True, kw_only=True)
class Variant:
    """What differs from one training to the next.

    Attributes:
        setting: how results call it, e.g. ``{prior: chrono}``.
        devices: options of `datamodules.priors.Devices`.
        local: options of `LocalTraining`.
        mitigation: options of `experiments.device_data.Mitigated`, None for none.
        known_examples: examples that the adversary has of each user, None for half of them.
        central: epochs of training on all devices' examples in one place, beside; None for none (table 2).
        only: data sets to which it is confined, None for all.
    """

    setting: dict[str, Any]
    devices: dict[str, Any] = field(default_factory=dict)
    local: dict[str, Any] = field(default_factory=dict)
    mitigation: Mitigated | None = None
    known_examples: int | None = None
    central: int | None = None
    only: list[str] | None = None


@dataclass(frozen=True, kw_only=True)
class DeanonymizationExperiment(PaperExperiment):
    """A table or figure: every data set with every variant, each trained and recorded once and then looked at.

    Attributes:
        sources: by data set, its devices.
        variants: the trainings.
        looks: what of each recording the attacks are given.
        analyses: what else is looked at, by name; see `experiments.identity_analyses`.
    """

    small_cells = True
    families = ("re-identification", "matching")
    sources: dict[str, Source]
    variants: list[Variant]
    looks: list[MessageSelection]
    analyses: list[str] = field(default_factory=list)

    @classmethod
    def parse(cls, content: dict[str, Any]) -> Self:
        """From a configuration; ``local`` holds for all variants that do not say otherwise."""
        common = content.pop("local", {})
        sources = {name: Source(**options) for name, options in content.pop("sources").items()}
        made = cls(
            data=list(sources),
            sources=sources,
            variants=[_variant(entry, common) for entry in content.pop("variants")],
            looks=[MessageSelection(**entry) for entry in content.pop("looks", [{}])],
            **content,
        )
        check_names("data set", list(made.sources), list(DEVICE_DATA))
        check_names("analysis", made.analyses, list(ANALYSES))
        for look in made.looks:
            check_names("attack", look.attacks or [], list(made.attacks))
        for variant in made.variants:
            check_names("data set", variant.only or [], list(made.sources))
            LocalTraining(**variant.local)
        for source in made.sources.values():
            if source.rounds < 1:
                raise InputError(expected="rounds of at least 1", found=str(source.rounds), way_out="Fix `sources`.")
        return made

    def cells(self, choice: Choice) -> Iterator[PaperCell[Any]]:
        for data in self.names(choice):
            variants = [variant for variant in self.variants if variant.only is None or data in variant.only]
            yield from self.grid_of(data, choice, DeviceCell, variants)

    def source(self, data: str, root: str | None) -> OwnedDataModule:
        return make_devices(data, self.sources[data].data, root=root, seed=0)


@dataclass(frozen=True)
class DeviceCell(RecordedCell[DeanonymizationExperiment]):
    """One training of anonymous and known devices, and every look at its recording."""

    variant: Variant

    @property
    def key(self) -> str:
        words = "-".join(str(value) for value in self.variant.setting.values())
        return f"{self.data}-{words}-seed{self.seed}"

    @property
    def setting(self) -> dict[str, Any]:
        return {"data": self.data, **self.variant.setting}

    @property
    def rounds(self) -> int:
        return self._source.rounds

    @property
    def recorded(self) -> list[str] | None:
        layers = [*self._source.layers, *(layer for look in self.table.looks for layer in look.layers or ())]
        return [pattern for layer in dict.fromkeys(layers) for pattern in (layer, f"{layer}.*")]

    def build(self) -> tuple[FederatedModule, OwnedDataModule]:
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
        found = [Evaluation(self._qualities(recording, directory))]
        view = joined_view(recording, learner=learner_from(recording.manifest.learner))
        truth, layers = message_truth(recording, view), self._source.layers
        source = self.build()[1]
        for look in self.table.looks if INSTEAD not in self.table.analyses else ():
            seen, own = selected(view, truth, look, seed=self.seed, roles=source.device_split.roles)
            attacks = self._attacks(look.layers or layers, look.attacks)
            setting = {**self.setting, **look.setting}
            show = self.choice.progress
            found.append(attack_messages(seen, own, attacks, seed=self.seed, setting=setting, progress=show))
        for name in self.table.analyses:
            material = Material(view, truth, source, layers, self._attacks(layers), self.seed, self.setting)
            found.append(ANALYSES[name](material))
        return joined(found), {"train": middle - start, "attack": time.perf_counter() - middle}

    def _attacks(self, layers: Sequence[str], names: Sequence[str] | None = None) -> list[Attack]:
        """The table's attacks, or those named, on some layers where it does not say which."""
        taking = [name for name in self.table.attacks if self.table.takes(name, "layers")]
        changes = {name: {"layers": layers, **self.table.attacks[name]} for name in taking}
        return list(self.table.make_attacks(names, changes).values())

    @property
    def _source(self) -> Source:
        return self.table.sources[self.data]

    def _qualities(self, recording: Recording, directory: Path) -> pd.DataFrame:
        """Of the global model before the last round, and of the central one where it is asked for."""
        _, source = self.build()
        module = self._module(source)
        module.load_state_dict(recording.model(recording.rounds[-1]), strict=False)
        rows = [self._quality(RECORDED, module, source)]
        if self.variant.central is not None:
            central = self._module(source)
            cell_trainer(self.variant.central, directory).fit(central, datamodule=Pooled(source))
            rows.append(self._quality(CENTRAL, central, source))
        return concat(rows)

    def _quality(self, name: str, module: FederatedText | FederatedTagger, source: OwnedDataModule) -> pd.DataFrame:
        """A row for each user: the model's own metric on its test examples."""
        module.eval()
        tested = {user: numbers for user, numbers in enumerate(source.device_split.test) if len(numbers)}
        values = []
        for numbers in tested.values():
            module.quality.reset()
            with torch.no_grad():
                for part in torch.split(numbers, _TESTED_AT_ONCE):
                    module.update_metrics(source.fields(part))
            values.append(float(module.quality.compute()))
        examples = [len(numbers) for numbers in tested.values()]
        metrics = {module.metric: values}
        return self.scores(name, metrics, victims=list(tested), round=self.rounds - 1, items=examples)


def _variant(entry: dict[str, Any], common: dict[str, Any]) -> Variant:
    mitigation = entry.get("mitigation")
    return Variant(
        **{
            **entry,
            "local": {**common, **entry.get("local", {})},
            "mitigation": None if mitigation is None else Mitigated(**mitigation),
        }
    )
