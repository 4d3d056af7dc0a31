"""The public algorithm of devices that learn to label photographs: what the server can simulate, knowing no device."""

import functools
from collections.abc import Mapping

import torch
from torch import Tensor

from datamodules.cohort import Cohort
from modules.engine.local_hyperparameters import LocalTraining
from modules.engine.local_training import train_clients
from modules.engine.tasks import Parameters
from modules.learners.photo_tagger_task import TaggingTask
from modules.nets.tagger import Tagger, TaggerOptions

_NUMBER = "number"


class TaggerLearner:
    """Simulates devices; see `protocol.simulators.ExampleSimulator`.

    Args:
        network: what they train.
        num_classes: number of labels.
        local: how they train.
    """

    def __init__(self, *, network: TaggerOptions, num_classes: int, local: LocalTraining) -> None:
        self.network = network
        self.num_classes = num_classes
        self.local = local

    def network_shapes(self, held: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Shape of every parameter of the network, by name; nothing of that size is made."""
        with torch.device("meta"):
            made = Tagger(self.network, labels=self.num_classes, generator=None)
        return {name: tuple(value.shape) for name, value in made.named_parameters()}

    @functools.cached_property
    def _template(self) -> Tagger:
        return Tagger(self.network, labels=self.num_classes, generator=torch.Generator())

    def simulate_examples(
        self,
        model: Mapping[str, Tensor],
        features: Tensor,
        labels: Tensor,
        examples: Tensor,
        *,
        generator: torch.Generator,
    ) -> dict[str, Tensor]:
        """Deltas of simulated clients; the pool's images are uint8."""
        seed = int(torch.randint(2**62, (), generator=generator))
        cohort = Cohort(0, torch.arange(len(examples)), {_NUMBER: examples.clamp(min=0)}, examples >= 0)
        task = _PooledTagging(self._template, features, labels)
        return train_clients(task, model, {}, cohort, self.local, seed=seed).deltas


class _PooledTagging(TaggingTask):
    """Devices hold numbers of images in a pool, so that no image is kept twice."""

    def __init__(self, network: Tagger, images: Tensor, labels: Tensor) -> None:
        super().__init__(network)
        self.images = images
        self.labels = labels

    def client_loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        number = examples[_NUMBER]
        own = {"image": self.images[number].float().div(255), "label": self.labels[number]}
        return super().client_loss(parameters, own, mask)
