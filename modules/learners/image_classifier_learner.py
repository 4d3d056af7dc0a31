"""The public algorithm of clients that learn to classify images: what the server can simulate, knowing no client."""

import functools
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.func import functional_call

from datamodules.cohort import Cohort
from modules.engine.local_hyperparameters import LocalTraining
from modules.engine.local_training import train_clients
from modules.engine.network_task import ClassificationTask
from modules.engine.tasks import Parameters
from modules.nets.batch_norm import mask_batches
from modules.nets.classifiers import OUTPUT, Classifier, ClassifierOptions, build_classifier, classifier_shapes

_NUMBER = "number"


class ImageLearner:
    """Simulates clients that classify images; see `protocol.simulators.ClassifierSimulator`.

    Args:
        network: which classifier they train.
        image_shape: channels, height and width.
        num_classes: number of classes.
        local: how a client trains.
    """

    def __init__(
        self, *, network: ClassifierOptions, image_shape: tuple[int, int, int], num_classes: int, local: LocalTraining
    ) -> None:
        self.network = network
        self.image_shape = image_shape
        self.num_classes = num_classes
        self.local = local

    @property
    def output_layer(self) -> str:
        return OUTPUT

    def network_shapes(self, held: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Shape of every parameter of the network, by name; nothing of that size is made."""
        return classifier_shapes(self.network, image_shape=self.image_shape, classes=self.num_classes)

    @functools.cached_property
    def _template(self) -> Classifier:
        return build_classifier(
            self.network, image_shape=self.image_shape, classes=self.num_classes, generator=torch.Generator()
        )

    def simulate_examples(
        self,
        model: Mapping[str, Tensor],
        images: Tensor,
        labels: Tensor,
        examples: Tensor,
        *,
        generator: torch.Generator,
    ) -> dict[str, Tensor]:
        seed = int(torch.randint(2**62, (), generator=generator))
        cohort = Cohort(0, torch.arange(len(examples)), {_NUMBER: examples.clamp(min=0)}, examples >= 0)
        task = _PooledTask(self._template, images, labels)
        return train_clients(task, model, {}, cohort, self.local, seed=seed).deltas

    @torch.no_grad()
    def outputs(self, models: Mapping[str, Tensor], images: Tensor) -> tuple[Tensor, Tensor]:
        """Features and logits of each model; batch norms take the statistics of these images."""
        mask_batches(self._template, None)
        prefix = "body."
        count = len(next(iter(models.values())))
        bodies = [
            {name.removeprefix(prefix): value[i] for name, value in models.items() if name.startswith(prefix)}
            for i in range(count)
        ]
        body = self._template.body
        features = torch.stack([functional_call(body, parameters, (images,)) for parameters in bodies])
        weight, bias = models[f"{OUTPUT}.weight"], models[f"{OUTPUT}.bias"]
        return features, torch.baddbmm(bias[:, None], features, weight.transpose(1, 2))

    def decay_change(self, model: Mapping[str, Tensor], example_counts: Tensor) -> dict[str, Tensor]:
        """Change by weight decay alone.

        Every number follows one linear recursion, so it is run once, on a number that starts at one.
        """
        local = self.local
        apart = local.optimizer == "sgd" and local.weight_decay > 0
        factors = torch.tensor([self._decayed(int(n)) if apart else 1.0 for n in example_counts]) - 1
        return {name: factors.reshape(-1, *[1] * value.dim()).to(value.dtype) * value for name, value in model.items()}

    def _decayed(self, examples: int) -> float:
        local = self.local
        batches = 1 if local.batch_size is None else -(-examples // local.batch_size)
        value, velocity = 1.0, 0.0
        for _ in range(batches * local.epochs):
            velocity = local.momentum * velocity + local.weight_decay * value
            value -= local.learning_rate * velocity
        return value


class _PooledTask(ClassificationTask):
    """Clients hold numbers of images in a pool, so that no image is kept twice."""

    def __init__(self, network: Classifier, images: Tensor, labels: Tensor) -> None:
        super().__init__(network)
        self.images = images
        self.labels = labels

    def images_and_labels(self, examples: Parameters) -> tuple[Tensor, Tensor]:
        number = examples[_NUMBER]
        return self.images[number], self.labels[number]
