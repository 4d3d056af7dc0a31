"""Base of learners whose clients train one network on one loss."""

import copy
import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchmetrics import MeanMetric, Metric

from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.layer_inputs import layer_inputs
from fedleak.client.nets.batch_norm import with_batch_statistics
from fedleak.client.network import (
    ClassifierAlgorithm,
    ModuleAlgorithm,
    ModuleClassifier,
    Network,
    NetworkAlgorithm,
    last_linear,
)
from fedleak.client.one_output import OneOutput
from fedleak.core.errors import require
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.defenses.base import Update
from fedleak.server.model_manipulation import FirstLayer, ModelManipulation, SentModels
from fedleak.training.federated import FederatedModule
from fedleak.training.round_record import TrainingExamples

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

    Example:
        >>> from torch import nn
        >>> from fedleak import NetworkLearner
        >>> from fedleak.client import LocalTraining
        >>> class Linear(NetworkLearner):
        ...     '''One layer on images of digits.'''
        ...
        ...     def __init__(self, *, num_classes=None):
        ...         super().__init__(local=LocalTraining(learning_rate=0.1))
        ...         self.build_with(num_classes=num_classes)
        ...
        ...     def build(self, num_classes):
        ...         self.train_network(nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes)))
        >>> sum(weight.numel() for weight in Linear(num_classes=10).parameters())
        650
    """

    network: nn.Module
    algorithm: NetworkAlgorithm
    manipulation: ModelManipulation | None = None
    """What a malicious server sends in place of the global model; None for an honest server."""
    _sent: SentModels | None = None
    """The models of the current round; None if all clients get the global model."""

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
                see `fedleak.client.nets.batch_norm`.
            loss: see `NetworkAlgorithm.criterion`.
            inputs: field of the examples that is the network's input.
            labels: field of the examples that is the loss's target.
            draw_weights: whether to initialise the layers from this training's seed; False keeps pretrained weights.
        """
        if draw_weights:
            # Layers draw from torch's global generator, which is seeded for them and restored afterwards.
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

    def learns_from(self, round_number: int) -> bool:
        """Rounds with a manipulation do not change the global model."""
        return self.manipulation is None or round_number < self.manipulation.first_round

    def send(self, cohort: Cohort, model: Parameters) -> Parameters:
        manipulation = self.manipulation
        if manipulation is None or cohort.round < manipulation.first_round:
            self._sent = None
            return model
        examples = torch.zeros(0, 0)
        if manipulation.uses_examples:
            examples = self._first_inputs(model)
        generator = generator_for(self.seed, "manipulation", cohort.round)
        global_model = {name: value.cpu() for name, value in model.items()}
        self._sent = manipulation.sent(global_model, examples, cohort.clients.cpu(), generator=generator)
        return {name: value.to(self.device) for name, value in self._sent.first.items()}

    def client_models(self, cohort: Cohort) -> Parameters:
        if self._sent is None or len(self._sent) == 1:
            return {}
        sent = self._sent.of(cohort.clients.cpu())
        return {name: value.to(self.device) for name, value in sent.items()}

    def local_updates(self, cohort: Cohort, model: Parameters, willing: Tensor) -> tuple[Update, Tensor]:
        """Update of the clients, in groups of those that were sent the same model."""
        if self._sent is None or len(self._sent) == 1:
            return super().local_updates(cohort, model, willing)
        numbers = self._sent.numbers(cohort.clients.cpu())
        merged = dict[str, Tensor]()
        losses = []
        # One training for each model that was sent, of the clients that got it.
        for number in sorted(set(numbers.tolist())):
            group = (numbers == number).nonzero().flatten().to(willing.device)
            sent_model = {name: value[number].to(self.device) for name, value in self._sent.models.items()}
            self._spent = None  # the deltas of the groups are kept together
            update, loss = super().local_updates(cohort.select(group), sent_model, willing[group])
            for name, delta in update.deltas.items():
                if name not in merged:
                    merged[name] = delta.new_zeros(len(cohort), *delta.shape[1:])
                merged[name][group] = delta
            losses.append(loss * len(group))
        self._spent = None
        mean = torch.stack(losses).sum() / len(cohort)
        return dataclasses.replace(update, deltas=merged, clients=cohort.clients), mean

    def _first_inputs(self, model: Parameters) -> Tensor:
        """``(M, D)`` what the first layer gets of the server's own examples."""
        layer = FirstLayer.of(model).weight.removesuffix(".weight")
        auxiliary: Parameters = {}
        if self._data is not None:
            auxiliary = self._data.auxiliary()
        require(
            all(len(auxiliary.get(name, ())) for name in self.algorithm.names),
            "a server with examples of its own, for this manipulation",
            "none",
            "Raise data.auxiliary_per_class.",
        )
        inputs, _ = self.algorithm.fields(auxiliary)
        on_cpu = {name: value.cpu() for name, value in model.items()}
        return layer_inputs(self.algorithm, on_cpu, inputs, layer)

    @property
    def classifies(self) -> bool:
        """Whether the loss is cross-entropy over classes."""
        return isinstance(self.algorithm, ClassifierAlgorithm)

    def client_truth(self, cohort: Cohort) -> dict[str, Tensor]:
        if self.classes is None:
            return self._target_truth(cohort)
        # Number of real examples of each class.
        one_hot = functional.one_hot(cohort.examples[self.algorithm.names[1]], self.classes)
        return {"class_counts": (one_hot * cohort.mask[..., None]).sum(1)}

    def _target_truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """Negatives and positives of a network with one logit, or the mean target of one with another output."""
        head = OneOutput.of(self.algorithm)
        targets = self.algorithm.fields(cohort.examples)[1].double()
        if head is None or targets.numel() != cohort.mask.numel():
            return {}
        # One target for each example; those of padding do not count.
        targets = targets.reshape(cohort.mask.shape) * cohort.mask
        sizes = cohort.mask.sum(1)
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
