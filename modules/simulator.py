"""Simulators: the clients' public algorithm, which attacks run on simulated data."""

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call

from client.cohort import Cohort
from client.engine.differentiable_training import train_differentiably
from client.engine.fast.gradients import Parameters
from client.engine.local_hyperparameters import LocalTraining
from client.engine.local_training import train_clients
from client.engine.network_task import NUMBER, Network, NetworkTask
from client.engine.task import Task
from client.engine.training_job import own_elements
from client.nets.batch_norm import mask_batches
from defenses.base import Defense
from defenses.update_l1 import UpdateL1
from modules.input_simulation import InputSimulation
from protocol.errors import require
from protocol.view import ITEM_EMBEDDING

Shapes = Mapping[str, tuple[int, ...]]
USER_EMBEDDING = "user_embedding"
"""Name of a recommender's private user vector."""


@dataclass(frozen=True, kw_only=True)
class PublicAlgorithm:
    """Public description of the clients' algorithm; a recording holds its name and the fields of the subclass.

    Attributes:
        name: name in recordings; empty if recordings use the class path of the learner.
    """

    name: ClassVar[str] = ""

    def network_shapes(self, held: Shapes) -> dict[str, tuple[int, ...]]:
        """Shape of every public parameter, computed without allocating it.

        Args:
            held: shapes of the recorded model, for sizes that are not fields.
        """
        return dict(held)

    def named_as(self, held: Shapes) -> Self:
        """The same algorithm with the parameter names of a recorded model ``held``, if these differ by a prefix."""
        return self

    def arguments(self) -> dict[str, Any]:
        """Fields as plain values, for a manifest."""
        return {one.name: _plain(getattr(self, one.name)) for one in dataclasses.fields(self)}


def _plain(value: Any) -> Any:
    if isinstance(value, UpdateL1):
        return {"strength": value.strength, "reduction": value.reduction, "parameters": list(value.parameters)}
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value


@dataclass(frozen=True, kw_only=True)
class Simulator(PublicAlgorithm):
    """Simulator of clients that run `train_clients` on a task.

    Attributes:
        local: local training.
        update_l1: defence that adds a penalty to the local loss, or None.
    """

    local: LocalTraining
    update_l1: UpdateL1 | None = None

    @property
    def task(self) -> Task:
        """The clients' training objective."""
        raise NotImplementedError(f"{type(self).__name__} must give its task")

    @property
    def learning_rate(self) -> float:
        """Local learning rate."""
        return self.local.learning_rate

    @property
    def penalties(self) -> tuple[Defense, ...]:
        """Defences that are part of the local loss."""
        return () if self.update_l1 is None else (self.update_l1,)

    def steps(self, example_counts: Tensor) -> Tensor:
        """``(V,)`` number of local steps of clients with ``example_counts (V,)``."""
        local = self.local
        if local.updates is not None:
            return torch.full_like(example_counts, local.updates)
        size = local.batch_size
        batches = torch.ones_like(example_counts) if size is None else (example_counts + size - 1) // size
        return local.epochs * batches.clamp(min=1)

    def train(
        self,
        model: Mapping[str, Tensor],
        private: Parameters,
        cohort: Cohort,
        *,
        task: Task | None = None,
        seed: int = 0,
    ) -> dict[str, Tensor]:
        """Deltas of simulated clients, see `client.engine.local_training.train_clients`."""
        return train_clients(
            task or self.task, model, private, cohort, self.local, seed=seed, defenses=self.penalties
        ).deltas


@dataclass(frozen=True, kw_only=True)
class RecommendationSimulator(Simulator):
    """Simulator of clients with a private user vector and rows of an item table: a `RecommenderSimulator`."""

    def simulate(
        self,
        model: Mapping[str, Tensor],
        items: Tensor,
        labels: Tensor,
        users: Tensor,
        *,
        differentiable: bool = False,
    ) -> dict[str, Tensor]:
        if differentiable:
            return self._simulate_differentiably(model, items, labels, users)
        clients = torch.arange(items.shape[0])
        cohort = Cohort(0, clients, {"label": labels}, items >= 0, {ITEM_EMBEDDING: items})
        return self.train(model, {USER_EMBEDDING: users}, cohort)

    def _simulate_differentiably(
        self, model: Mapping[str, Tensor], items: Tensor, labels: Tensor, users: Tensor
    ) -> dict[str, Tensor]:
        task, mask, clients = self.task, items >= 0, items.shape[0]
        received: Parameters = {
            name: value[items.clamp(min=0)] if name == ITEM_EMBEDDING else value.expand(clients, *value.shape)
            for name, value in model.items()
        }
        elements = own_elements(model, {ITEM_EMBEDDING: items}, clients)

        def loss(parameters: Parameters) -> Tensor:
            total = task.stacked_loss(parameters, {"label": labels}, mask).sum()
            public = {name: parameters[name] for name in received}
            for defense in self.penalties:
                penalty = defense.penalty(public, received, elements)
                total = total if penalty is None else total + penalty.sum()
            return total

        trained = train_differentiably({**received, USER_EMBEDDING: users}, loss, self.local)
        return {name: trained[name] - value for name, value in received.items()}


@dataclass(frozen=True, kw_only=True)
class NetworkSimulator(InputSimulation, Simulator):
    """Simulator of clients that train a `NetworkTask`: an `ExampleSimulator` and an `InvertibleSimulator`.

    Attributes:
        own: the task, unless a subclass builds it from its fields.
    """

    own: NetworkTask | None = None

    @property
    def task(self) -> NetworkTask:
        assert self.own is not None
        return self.own

    def network_shapes(self, held: Shapes) -> dict[str, tuple[int, ...]]:
        return {name: tuple(value.shape) for name, value in self.task.network.named_parameters()}

    def simulate_examples(
        self,
        model: Mapping[str, Tensor],
        features: Tensor,
        labels: Tensor,
        examples: Tensor,
        /,
        *,
        generator: torch.Generator,
    ) -> dict[str, Tensor]:
        seed = int(torch.randint(2**62, (), generator=generator))
        cohort = Cohort(0, torch.arange(len(examples)), {NUMBER: examples.clamp(min=0)}, examples >= 0)
        return self.train(self.trained(model), {}, cohort, task=self.task.on(features, labels), seed=seed)

    def trained(self, model: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of a model that the network trains, without e.g. the statistics of batch norms."""
        own = {name for name, _ in self.task.network.named_parameters()}
        return {name: value for name, value in model.items() if name in own}

    def named_as(self, held: Shapes) -> Self:
        """Other systems' parameters have the names in the network itself, without the prefix of `NetworkLearner`."""
        if self.own is None or any(name.startswith("network.") for name in held):
            return self
        network = self.own.network
        if not isinstance(network, Network):
            return self
        inputs, labels = self.own.names
        task = NetworkTask(network.network, self.own.criterion, inputs=inputs, labels=labels)
        return dataclasses.replace(self, own=task)


@dataclass(frozen=True, kw_only=True)
class ClassificationSimulator(NetworkSimulator):
    """Simulator of clients whose network ends in one linear layer: a `ClassifierSimulator`."""

    @property
    def output_layer(self) -> str:
        return last_linear(self.task.network)

    @torch.no_grad()
    def outputs(self, models: Mapping[str, Tensor], images: Tensor) -> tuple[Tensor, Tensor]:
        """Features and logits of each model; batch norms use the statistics of these images."""
        network, features, logits = copy.deepcopy(self.task.network), [], []
        mask_batches(network, None)
        network.get_submodule(self.output_layer).register_forward_pre_hook(lambda _, given: features.append(given[0]))
        for position in range(len(next(iter(models.values())))):
            own = {name: value[position] for name, value in self.trained(models).items()}
            logits.append(functional_call(network, own, (images,)))
        return torch.stack(features), torch.stack(logits)

    def layer_errors(self, model: Mapping[str, Tensor], inputs: Tensor, layer: str) -> Tensor:
        """Gradients by the layer's outputs, of examples that do not influence each other as batch norms make them."""
        network, outputs = copy.deepcopy(self.task.network), list[Tensor]()

        def keep(_: nn.Module, __: tuple[Tensor, ...], output: Tensor) -> Tensor:
            outputs.append(output.detach().repeat_interleave(classes, 0).requires_grad_())
            return outputs[0]

        network.get_submodule(layer).register_forward_hook(keep)
        classes = self.trained(model)[f"{self.output_layer}.bias"].shape[0]
        labels = torch.arange(classes).repeat(len(inputs))
        logits = functional_call(network, self.trained(model), (inputs,))
        loss = self.task.criterion(logits, labels, reduction="sum")
        (found,) = torch.autograd.grad(loss, outputs)
        return found.reshape(len(inputs), classes, found.shape[1])

    @property
    def plain_sgd(self) -> bool:
        return self.local.optimizer == "sgd" and not self.local.momentum and not self.local.weight_decay

    def without_noise(self) -> Self:
        return dataclasses.replace(self, local=dataclasses.replace(self.local, noise_multiplier=0.0))

    @property
    def single_pass_batch(self) -> int | None:
        local = self.local
        once = local.epochs == 1 and local.updates is None and local.example_clip is None
        return local.batch_size if once and self.plain_sgd else None

    def step_sums(self, example_counts: Tensor) -> Tensor | None:
        """With momentum m, the gradient before n remaining steps has step size ``lr (1 - m^n) / (1 - m)``."""
        local = self.local
        if local.optimizer != "sgd" or local.example_clip is not None:
            return None
        steps = self.steps(example_counts).double()
        if not local.momentum:
            return local.learning_rate * steps
        last = local.momentum * (1 - local.momentum**steps) / (1 - local.momentum)
        return local.learning_rate * (steps - last) / (1 - local.momentum)

    def decay_change(self, model: Mapping[str, Tensor], example_counts: Tensor) -> dict[str, Tensor]:
        """Change of each parameter by weight decay alone.

        All parameters follow the same linear recursion, so it is computed once, for an initial value of one.
        """
        local = self.local
        separate = local.optimizer == "sgd" and local.weight_decay > 0
        steps = self.steps(example_counts).tolist()
        changes = [self._decayed(count) - 1 if separate else 0.0 for count in steps]
        factors = torch.tensor(changes, dtype=torch.float64)
        return {name: factors.reshape(-1, *[1] * value.dim()).to(value.dtype) * value for name, value in model.items()}

    def _decayed(self, steps: int) -> float:
        local = self.local
        value, velocity = 1.0, 0.0
        for _ in range(steps):
            velocity = local.momentum * velocity + local.weight_decay * value
            value -= local.learning_rate * velocity
        return value


def last_linear(network: nn.Module) -> str:
    """Name of a network's last linear layer.

    Raises:
        InputError: it has none.
    """
    names: list[str] = [name for name, layer in network.named_modules() if isinstance(layer, nn.Linear)]
    require(names, "a network that ends in a linear layer", "none", "End it in torch.nn.Linear.")
    return names[-1]
