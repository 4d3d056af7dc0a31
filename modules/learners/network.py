"""Base of learners whose clients train one network on one loss."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchmetrics import MeanMetric, Metric

from client.cohort import Cohort
from client.nets.batch_norm import with_batch_statistics
from client.network import (
    ClassifierAlgorithm,
    ModuleAlgorithm,
    ModuleClassifier,
    Network,
    NetworkAlgorithm,
    OneOutput,
    last_linear,
)
from modules.federated import FederatedModule
from modules.round_record import TrainingExamples
from protocol.seeding import PERSISTENT, generator_for

_POSITIVE = 0.5
"""Target of a logit above which an example is positive."""


class NetworkLearner(FederatedModule):
    """Federated training of any network.

    A subclass creates its network in `build` and passes it to `train_network`. With cross-entropy, attacks on class
    proportions can simulate its clients. ::

        class Small(NetworkLearner):
            def __init__(self, *, num_classes: int | None = None, local: LocalTraining = LocalTraining(),
                         **federation: Unpack[Federation]) -> None:
                super().__init__(local=local, **federation)
                self.build_with(num_classes=num_classes)

            def build(self, num_classes: int) -> None:
                self.train_network(nn.Sequential(nn.Flatten(), nn.LazyLinear(num_classes)), functional.cross_entropy)
    """

    network: nn.Module
    algorithm: NetworkAlgorithm

    def train_network(
        self,
        network: nn.Module,
        loss: Callable[..., Tensor] = functional.cross_entropy,
        *,
        inputs: str = "image",
        labels: str = "label",
        draw_weights: bool = True,
    ) -> None:
        """Sets a network as the global model.

        Args:
            network: maps inputs ``(N, ...)`` to outputs ``(N, ...)``; its batch norms use the statistics of the batch,
                see `client.nets.batch_norm`.
            loss: see `NetworkAlgorithm.criterion`.
            inputs: field of the examples that is the network's input.
            labels: field of the examples that is the loss's target.
            draw_weights: whether to initialise the layers from this training's seed; False keeps pretrained weights.
        """
        if draw_weights:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(generator_for(self.seed, "global-model", PERSISTENT).initial_seed())
                for layer in network.modules():
                    reset = getattr(layer, "reset_parameters", None)
                    if callable(reset):
                        reset()
        network = with_batch_statistics(network)
        self.network = network
        kind = ModuleClassifier if loss is functional.cross_entropy else ModuleAlgorithm
        template = Network(copy.deepcopy(network))
        self.learn(
            kind(
                module=template,
                loss_function=loss,
                inputs=inputs,
                labels=labels,
                local=self.local,
                update_l1=self.update_l1,
            )
        )

    def learn(self, algorithm: NetworkAlgorithm) -> None:
        """Sets the clients' algorithm, whose network must not share memory with the global model."""
        self.algorithm = algorithm
        self.quality: Metric = MeanMetric()
        self.classes: int | None = None
        if self.classifies:
            self.classes = last_linear(algorithm.template)[1].out_features

    @property
    def classifies(self) -> bool:
        """Whether the loss is cross-entropy over classes."""
        return isinstance(self.algorithm, ClassifierAlgorithm)

    def client_truth(self, cohort: Cohort) -> dict[str, Tensor]:
        if self.classes is None:
            return self._target_truth(cohort)
        one_hot = functional.one_hot(cohort.examples[self.algorithm.names[1]], self.classes)
        return {"class_counts": (one_hot * cohort.mask[..., None]).sum(1)}

    def _target_truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """Negatives and positives of a network with one logit, or the mean target of one with another output."""
        head = OneOutput.of(self.algorithm)
        targets = self.algorithm.fields(cohort.examples)[1].double()
        if head is None or targets.numel() != cohort.mask.numel():
            return {}
        targets, sizes = targets.reshape(cohort.mask.shape) * cohort.mask, cohort.mask.sum(1)
        if not head.binary:
            return {"target_mean": targets.sum(1) / sizes}
        positives = (targets > _POSITIVE).sum(1)
        return {"class_counts": torch.stack([sizes - positives, positives], dim=1)}

    def examples(self, cohort: Cohort) -> TrainingExamples:
        """Inputs of the network, with their classes."""
        inputs, labels = self.algorithm.fields(cohort.examples)
        return TrainingExamples(inputs, labels if self.classifies else None, cohort.mask)

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs of the global model, e.g. logits ``(B, K)``."""
        outputs: Tensor = self.network(inputs)
        return outputs

    def update_metrics(self, batch: dict[str, Tensor]) -> dict[str, Metric]:
        """Accuracy of a classifier, mean loss of another network."""
        inputs, labels = self.algorithm.fields(batch)
        outputs = self(inputs)
        if self.classifies:
            self.quality.update((outputs.argmax(1) == labels).float())
            return {"val/accuracy": self.quality}
        self.quality.update(self.algorithm.criterion(outputs, labels, reduction="none"))
        return {"val/loss": self.quality}
