"""Decaf: what classes a client holds and in what proportion, tables III to VII and figures 7 to 14, as experiments."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pandas as pd

from attacks.base import Attack
from datamodules.base import FederatedDataModule
from datamodules.cifar10 import CIFAR10
from datamodules.classification import ClassificationDataModule
from datamodules.client_split import ClientSplit
from datamodules.composition import decaf_compositions
from datamodules.deltas import Recording
from datamodules.digits import Digits
from datamodules.fer import FER
from datamodules.mnist import MNIST, FashionMNIST
from datamodules.skin_cancer import SkinCancer
from datamodules.synthetic_images import SyntheticImages
from defenses.base import Defense
from defenses.local_dp import LocalDP
from evaluation.runner import Evaluation
from evaluation.scores import concat, with_setting
from experiments.base import Choice, PaperCell, PaperExperiment
from experiments.global_model import left_alone, model_scores, of_recording
from experiments.options import as_number, check_names, plain_number
from experiments.recorded_cell import RecordedCell
from modules.classifier import FederatedClassifier
from modules.federated import FederatedModule
from modules.local_hyperparameters import LocalTraining
from modules.nets.classifiers import Network
from protocol.errors import InputError

IMAGE_DATA: dict[str, type[ClassificationDataModule]] = {
    "MNIST": MNIST,
    "FashionMNIST": FashionMNIST,
    "cifar10": CIFAR10,
    "fer2013": FER,
    "ham10000": SkinCancer,
    "digits": Digits,
    "synthetic-images": SyntheticImages,
}
_TEN_CLASSES = "MNIST"
"""Whose users' compositions data sets of ten classes take that the paper does not have."""


@dataclass(frozen=True, kw_only=True)
class Clients:
    """The clients of a data set.

    Attributes:
        examples: images of each client; the paper prints none.
        auxiliary: images of each class that the attacker has.
        network: which classifier they train, by the paper's table II.
    """

    examples: int
    auxiliary: int = 100
    network: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """What differs from one column of a table to the next.

    Attributes:
        name: how results call it.
        local: options of `LocalTraining`.
        network: options of `Network`, beside those of the data set.
        auxiliary: images of each class that the attacker has, None for as many as the data set's clients say.
        epsilon: budget of local DP for one send of the whole update, infinite for none.
        arguments: by attack, what differs in its constructor's arguments.
        only: data sets to which it is confined, None for all of the table's.
    """

    name: str
    local: dict[str, Any] = field(default_factory=dict)
    network: dict[str, Any] = field(default_factory=dict)
    auxiliary: int | None = None
    epsilon: float = math.inf
    arguments: dict[str, dict[str, Any]] = field(default_factory=dict)
    only: list[str] | None = None


@dataclass(frozen=True, kw_only=True)
class CompositionExperiment(PaperExperiment):
    """A table: every data set with every variant, round by round.

    Attributes:
        clients: by data set, its clients.
        variants: the columns.
        rounds: rounds to train.
        attacked: which of them to attack, from 1; None for all.
        unrecorded: also train without recorder and attack, for the accuracy and the wall time of a round beside.
        together: attack the last round with all the earlier ones, in place of each by itself.
        clip: L2 norm to which an update is clipped under local DP.
        delta: delta of local DP.
    """

    small_cells = True
    families = ("composition",)
    clients: dict[str, Clients]
    variants: list[Variant]
    rounds: int = 3
    attacked: list[int] | None = None
    unrecorded: bool = False
    together: bool = False
    clip: float = 1.0
    delta: float = 1e-5

    @classmethod
    def parse(cls, content: dict[str, Any]) -> Self:
        """From a configuration; ``local`` holds for all variants that do not say otherwise."""
        common = content.pop("local", {})
        variants = [_variant(entry, common) for entry in content.pop("variants")]
        clients = {name: Clients(**options) for name, options in content.pop("clients").items()}
        made = cls(data=list(clients), clients=clients, variants=variants, **content)
        check_names("data set", list(made.clients), list(IMAGE_DATA))
        for variant in made.variants:
            check_names("attack", list(variant.arguments), list(made.attacks))
            check_names("data set", variant.only or [], list(made.clients))
        if made.attacked is not None and not set(made.attacked) <= set(range(1, made.rounds + 1)):
            raise InputError(
                expected=f"attacked rounds from 1 to {made.rounds}",
                found=str(made.attacked),
                way_out="Fix `attacked`.",
            )
        return made

    def cells(self, choice: Choice) -> Iterator[PaperCell[Any]]:
        for data in self.names(choice):
            variants = [variant for variant in self.variants if variant.only is None or data in variant.only]
            yield from self.grid_of(data, choice, _Cell, variants)

    def source(self, data: str, root: str | None) -> FederatedDataModule:
        return IMAGE_DATA[data](root=root)


@dataclass(frozen=True)
class _Cell(RecordedCell[CompositionExperiment]):
    variant: Variant

    @property
    def key(self) -> str:
        return f"{self.data}-{self.variant.name}-seed{self.seed}-victims{self.choice.victims or 'all'}"

    @property
    def setting(self) -> dict[str, Any]:
        budget = {} if math.isinf(self.variant.epsilon) else {"epsilon": plain_number(self.variant.epsilon)}
        return {"data": self.data, "variant": self.variant.name, **budget}

    @property
    def rounds(self) -> int:
        return self.table.rounds

    def make_attacks(self) -> dict[str, Attack]:
        return self.table.make_attacks(changes=self.variant.arguments)

    def build(self) -> tuple[FederatedModule, FederatedDataModule]:
        clients = self.table.clients[self.data]
        known = decaf_compositions()["data"].unique()
        split = ClientSplit(
            scheme="composition",
            composition=self.data if self.data in known else _TEN_CLASSES,
            examples_per_client=clients.examples,
        )
        auxiliary = clients.auxiliary if self.variant.auxiliary is None else self.variant.auxiliary
        source = IMAGE_DATA[self.data](
            root=self.choice.root, seed=self.seed, split=split, auxiliary_per_class=auxiliary
        )
        module = FederatedClassifier(
            num_classes=source.num_classes,
            image_shape=source.image_shape,
            network=Network(**{**clients.network, **self.variant.network}),
            local=LocalTraining(**self.variant.local),
            defenses=self._defenses(),
            seed=self.seed,
        )
        return module, source

    @property
    def attacked(self) -> list[int] | None:
        if self.table.together:
            return [self.table.rounds - 1]
        return None if self.table.attacked is None else [number - 1 for number in self.table.attacked]

    @property
    def history(self) -> bool:
        return self.table.together

    def evaluate(self, directory: Path) -> tuple[Evaluation, dict[str, float]]:
        """Every round in a row of its own, with the accuracy of the global model that it began with."""
        evaluation, seconds = super().evaluate(directory)
        numbered = [_with_round(table) for table in (evaluation.scores, evaluation.profiles)]
        evaluation.scores, evaluation.profiles = numbered
        recording = Recording(directory / "deltas")
        trained = [of_recording(recording, self.attacked, round_seconds=seconds["train"] / self.rounds)]
        if self.table.unrecorded:
            trained.append(left_alone(*self.build(), self.rounds, directory, self.attacked))
        for models in trained:
            scores = model_scores(models, *self.build(), self, timed=self.table.unrecorded)
            evaluation.scores = concat([evaluation.scores, scores])
        return evaluation, seconds

    def _defenses(self) -> list[Defense]:
        if math.isinf(self.variant.epsilon):
            return []
        return [LocalDP(clip=self.table.clip, epsilon=self.variant.epsilon, delta=self.table.delta)]


def _with_round(table: pd.DataFrame) -> pd.DataFrame:
    return with_setting(table, round=table["round"] + 1) if len(table) else table


def _variant(entry: dict[str, Any], common: dict[str, Any]) -> Variant:
    epsilon = as_number("epsilon", entry.get("epsilon", math.inf))
    return Variant(**{**entry, "local": {**common, **entry.get("local", {})}, "epsilon": epsilon})
