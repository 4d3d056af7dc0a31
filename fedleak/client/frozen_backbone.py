"""Clients that train the head of a classifier on the features of a frozen public network."""

import copy
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from fedleak.client.algorithm import Model
from fedleak.client.backbones import PACKAGED, Backbone, BackboneName, backbone, is_given
from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.network import ClassifierAlgorithm, Network
from fedleak.client.pretrained_examples import IMAGE, LABEL, TOKENS
from fedleak.core.errors import require
from fedleak.core.ranges import NonNegativeInt, PositiveInt
from fedleak.defenses.base import Update

FEATURES = "features"
"""Field of an example that the head reads: ``(F,)`` what the backbone makes of a record."""


def head(features: int, hidden: int, classes: int) -> nn.Module:
    """Linear layer ``output`` from features to logits, behind a layer ``hidden`` with ReLU unless that is 0 wide."""
    layers = nn.Sequential()
    if hidden:
        layers.add_module("hidden", nn.Linear(features, hidden))
        layers.add_module("activation", nn.ReLU())
    layers.add_module("output", nn.Linear(hidden or features, classes))
    return layers


@dataclass(frozen=True, kw_only=True)
class FrozenBackboneAlgorithm(ClassifierAlgorithm):
    """Clients that train a head on the features of a frozen network, which the server sent before.

    Records are what the backbone reads, images or texts; the network of this algorithm, its template, is the head alone
    and reads features. The backbone is no parameter of the global model and enters no recording, which names its kind
    and its hash.

    Attributes:
        backbone: which network, of a closed list.
        config: of ``transformers``, the network's ``config.json`` as text.
        hidden: neurons of a hidden layer with ReLU; 0 for none.
        num_classes: number of classes.
        base_seed: seed of the backbone's weights where no file holds them.
        base: SHA-256 of the backbone's tensors; empty for any.
        folder: file or folder with the backbone's weights. Not recorded.
    """

    name: ClassVar[str] = "frozen-backbone"

    backbone: BackboneName
    config: str = ""
    hidden: NonNegativeInt = 0
    num_classes: PositiveInt
    base_seed: int = 0
    base: str = ""
    folder: Path | None = field(default=None, compare=False)

    def arguments(self) -> dict[str, Any]:
        arguments = super().arguments()
        del arguments["folder"]
        return arguments | {"base": self.base or self.frozen.hash}

    @property
    def frozen(self) -> Backbone:
        """The backbone.

        Raises:
            InputError: there is no such network, or it is not the one that was recorded.
        """
        return _checked(self.backbone, self.config, self.base_seed, self.folder, self.base)

    @property
    def has_weights(self) -> bool:
        """Whether the backbone's weights were given, so that no hash need tell them."""
        return is_given(self.backbone, self.folder)

    @property
    def needs_weights(self) -> bool:
        """Whether whoever reads a recording must give the backbone's weights: they are not drawn from the seed."""
        return self.backbone in PACKAGED

    @property
    def package(self) -> str:
        """Python package with the backbone's weights; empty for none."""
        return PACKAGED.get(self.backbone, ("", ""))[0]

    @property
    def file(self) -> str:
        """File of the weights in `package`."""
        return PACKAGED.get(self.backbone, ("", ""))[1]

    @property
    def record_field(self) -> str:
        """Field of an example that the backbone reads."""
        return TOKENS if self.frozen.reads_texts else IMAGE

    @property
    def names(self) -> tuple[str, str]:
        return FEATURES, LABEL

    @functools.cached_property
    def template(self) -> nn.Module:
        return Network(head(self.frozen.width, self.hidden, self.num_classes))

    def features_of(self, records: Tensor) -> Tensor:
        """Features ``(..., F)`` of records ``(..., *shape)``; features stay as they are.

        Records in float64 have the features of single precision, which clients compute, in that type.
        """
        if self.are_features(records):
            return records
        features = self.frozen.features(records)
        return features.to(records.dtype) if records.dtype == torch.float64 else features

    def are_features(self, values: Tensor) -> bool:
        """Whether values ``(N, ...)`` are features rather than images or token numbers."""
        return values.is_floating_point() and values.dim() < 4 and values.shape[-1] == self.frozen.width

    def on(self, features: Tensor, labels: Tensor) -> Self:
        return super().on(self.features_of(features), labels)

    def fields(self, examples: Parameters, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        """Features ``(N, F)`` and labels ``(N,)`` of examples that hold features, records, or numbers of a pool."""
        if FEATURES not in examples and self._pool is None:
            examples = self._read(examples)
        return super().fields(examples, dtype)

    def read(self, records: Tensor) -> Tensor:
        return self.features_of(records)

    def record_losses(self, parameters: Parameters, inputs: Tensor, labels: Tensor) -> Tensor:
        return super().record_losses(parameters, self.features_of(inputs), labels)

    def _read(self, examples: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The examples with features in place of records."""
        name = self.record_field
        require(
            name in examples and LABEL in examples,
            f"examples with {name} and {LABEL}, which the backbone {self.backbone} reads",
            ", ".join(examples),
            "Give other --data, or another --model.backbone.",
        )
        others = {key: value for key, value in examples.items() if key != name}
        return {FEATURES: self.features_of(examples[name]), **others}

    def train(self, model: Model, cohort: Cohort, **options: Any) -> Update:
        """As of `DescentAlgorithm`; the features of the cohort's records are computed before."""
        if self.record_field in cohort.examples:
            cohort = copy.copy(cohort)
            cohort.examples = self._read(cohort.examples)
        return super().train(model, cohort, **options)


@functools.lru_cache(maxsize=4)
def _checked(name: BackboneName, config: str, seed: int, file: Path | None, base: str) -> Backbone:
    """A backbone with the hash that a recording says; empty for any."""
    network = backbone(name, config=config, seed=seed, file=file)
    require(
        not base or network.hash == base,
        f"the backbone whose tensors have the SHA-256 {base[:12]}...",
        f"{network.hash[:12]}... of {file or 'random weights'}" if base else "",
        "Give the file or folder with the weights that the clients were sent (--learner.path PATH).",
    )
    return network
