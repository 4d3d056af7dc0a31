"""Tables and figures of deanonymization as configurations."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from attacks.base import Attack
from attacks.registry import ATTACKS
from datamodules.owned import OwnedDataModule
from errors import InputError
from experiments.base import PaperExperiment
from experiments.device_data import DEVICE_DATA, Mitigated, make_devices
from experiments.identity_analyses import ANALYSES
from experiments.identity_attacks import IDENTITY_ATTACKS
from experiments.options import check_names
from modules.local_hyperparameters import LocalTraining
from reports.identity_looks import Look


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


@dataclass(frozen=True)
class DeviceTable(PaperExperiment):
    """A table or figure: every data set with every variant, each trained and recorded once and then looked at.

    Attributes:
        experiment: its name.
        metrics: the metrics it reports.
        sources: by data set, its devices.
        attacks: what is run, by name, with constructor arguments.
        variants: the trainings.
        looks: what of each recording the attacks are given.
        analyses: what else is looked at, by name; see `experiments.identity_analyses`.
        limits: see `PaperExperiment`.
    """

    small_cells = True
    experiment: str
    metrics: list[str]
    sources: dict[str, Source]
    attacks: dict[str, dict[str, Any]]
    variants: list[Variant]
    looks: list[Look]
    analyses: list[str] = field(default_factory=list)
    limits: dict[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, content: dict[str, Any]) -> "DeviceTable":
        """From a configuration; ``local`` holds for all variants that do not say otherwise."""
        common = content.pop("local", {})
        made = cls(
            sources={name: Source(**options) for name, options in content.pop("sources").items()},
            variants=[_variant(entry, common) for entry in content.pop("variants")],
            looks=[Look(**entry) for entry in content.pop("looks", [{}])],
            **content,
        )
        check_names("attack", list(made.attacks), list(made.known_attacks))
        check_names("data set", list(made.sources), list(DEVICE_DATA))
        check_names("analysis", made.analyses, list(ANALYSES))
        for look in made.looks:
            check_names("attack", look.attacks or [], list(made.attacks))
        for variant in made.variants:
            check_names("data set", variant.only or [], list(made.sources))
            LocalTraining(**variant.local)
        for source in made.sources.values():
            if source.rounds < 1:
                raise InputError(expected="rounds of at least 1", found=str(source.rounds), way_out="Mend `sources`.")
        return made

    @property
    def data(self) -> list[str]:  # type: ignore[override]
        """See `PaperExperiment.data`."""
        return list(self.sources)

    @property
    def known_attacks(self) -> Mapping[str, type[Attack]]:
        """See `PaperExperiment.known_attacks`."""
        return {**ATTACKS, **IDENTITY_ATTACKS}

    def source(self, data: str, root: str | None) -> OwnedDataModule:
        """See `PaperExperiment.source`."""
        return make_devices(data, self.sources[data].data, root=root, seed=0)


def _variant(entry: dict[str, Any], common: dict[str, Any]) -> Variant:
    mitigation = entry.get("mitigation")
    return Variant(
        **{
            **entry,
            "local": {**common, **entry.get("local", {})},
            "mitigation": None if mitigation is None else Mitigated(**mitigation),
        }
    )
