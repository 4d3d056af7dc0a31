"""What a client runs on the model that it receives: one description for its learner, the recording and attacks."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.engine.local_training import train_clients
from fedleak.client.engine.task import Task
from fedleak.defenses.base import Defense, Update
from fedleak.defenses.update_l1 import UpdateL1

Shapes = Mapping[str, tuple[int, ...]]
Model = Mapping[str, Tensor]
"""The global model before the round, one tensor per public parameter."""


@dataclass(frozen=True, kw_only=True)
class ClientAlgorithm:
    """What a client runs, as pure functions of a model and examples. The server wrote it, so it is public.

    It holds no client's data. A recording holds its name and its fields, which are plain values.

    Attributes:
        name: name in recordings; empty if recordings name the class of the learner instead.
    """

    name: ClassVar[str] = ""
    recorded_as: ClassVar[Mapping[str, str]] = {}
    """Names that fields have in recordings, if others."""

    @property
    def training_defenses(self) -> tuple[Defense, ...]:
        """Defences that change the local training, which attacks simulate."""
        return ()

    def network_shapes(self, recorded: Shapes) -> dict[str, tuple[int, ...]]:
        """Shape of every public parameter, computed without allocating it.

        Args:
            recorded: shapes of the recorded model, for sizes that are not fields.
        """
        return dict(recorded)

    def named_as(self, recorded: Shapes) -> Self:
        """The same algorithm with the parameter names of a recorded model ``recorded``, if these differ by a prefix."""
        return self

    def arguments(self) -> dict[str, Any]:
        """Fields as plain values, for a manifest."""
        names = [field.name for field in dataclasses.fields(self)]
        return {self.recorded_as.get(name, name): _plain(getattr(self, name)) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, Defense):
        return dict(vars(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return dataclasses.asdict(value)
        return value
    return value


@dataclass(frozen=True, kw_only=True)
class DescentAlgorithm(ClientAlgorithm, Task):
    """Clients that descend a loss. A subclass gives `loss` of one client, or `stacked_loss` of a `StackedTask`.

    Attributes:
        local: local training.
        update_l1: defence that adds a penalty to the local loss, or None.
    """

    local: LocalTraining
    update_l1: UpdateL1 | None = None

    @property
    def learning_rate(self) -> float:
        """Local learning rate."""
        return self.local.learning_rate

    @property
    def training_defenses(self) -> tuple[Defense, ...]:
        if self.update_l1 is None:
            return ()
        return (self.update_l1,)

    def steps(self, example_counts: Tensor) -> Tensor:
        """``(V,)`` number of local steps of clients with ``example_counts (V,)``."""
        local = self.local
        if local.updates is not None:
            return torch.full_like(example_counts, local.updates)
        size = local.batch_size
        batches = torch.ones_like(example_counts)
        if size is not None:
            batches = (example_counts + size - 1) // size  # the last batch of an epoch may be smaller
        return local.epochs * batches.clamp(min=1)

    @property
    def single_pass_batch(self) -> int | None:
        """Batch size, if clients make one pass of plain SGD over their examples; else None."""
        local = self.local
        once = local.epochs == 1 and local.updates is None and local.example_clip is None
        return local.batch_size if once and local.plain_sgd else None

    def without_noise(self) -> Self:
        """The same clients without the noise that private local training adds in every step."""
        return dataclasses.replace(self, local=dataclasses.replace(self.local, noise_multiplier=0.0))

    def step_sums(self, example_counts: Tensor) -> Tensor | None:
        """``(V,)`` sum of all step sizes; None if the optimizer scales parameters, or gradients are clipped.

        With momentum m, the gradient before n remaining steps has step size ``lr (1 - m^n) / (1 - m)``.
        """
        local = self.local
        if local.optimizer != "sgd" or local.example_clip is not None or local.max_grad_norm is not None:
            return None
        steps = self.steps(example_counts).double()
        if not local.momentum:
            return local.learning_rate * steps
        # The sum over n = 1..T of lr (1 - m^n) / (1 - m) is lr (T - m (1 - m^T) / (1 - m)) / (1 - m).
        missing = local.momentum * (1 - local.momentum**steps) / (1 - local.momentum)
        return local.learning_rate * (steps - missing) / (1 - local.momentum)

    def decay_change(self, model: Model, example_counts: Tensor) -> dict[str, Tensor]:
        """Change due to weight decay alone, by parameter ``(V, *shape)``, for clients with ``example_counts (V,)``.

        Zero without decay, or if the optimizer does not separate it from the gradients; plain SGD does. All parameters
        follow the same linear recursion, so it is computed once, for an initial value of one.
        """
        local = self.local
        separate = local.optimizer == "sgd" and local.weight_decay > 0
        steps = self.steps(example_counts).tolist()
        # Without other gradients a parameter is multiplied by the same factor, whatever its value.
        changes = [self._decayed(count) - 1 if separate else 0.0 for count in steps]
        factors = torch.tensor(changes, dtype=torch.float64)
        by_parameter = {}
        for name, value in model.items():
            of_clients = factors.reshape(-1, *[1] * value.dim()).to(value.dtype)
            by_parameter[name] = of_clients * value
        return by_parameter

    def _decayed(self, steps: int) -> float:
        local = self.local
        value = 1.0
        velocity = 0.0
        for _ in range(steps):
            # The gradient of decay is weight_decay * value, which enters the momentum like any other.
            velocity = local.momentum * velocity + local.weight_decay * value
            value -= local.learning_rate * velocity
        return value

    def train(
        self,
        model: Model,
        cohort: Cohort,
        *,
        private: Mapping[str, Tensor] | None = None,
        seed: int = 0,
        noise_key: int | bytes | None = None,
        defenses: Sequence[Defense] | None = None,
        spent: Update | None = None,
    ) -> Update:
        """Update of a cohort after local training, with private parameters and losses.

        Args:
            model: the global model, ``shape`` each; parameters named in ``cohort.rows`` are whole tables.
            cohort: clients and their examples.
            private: the clients' private parameters, ``(C, *shape)`` each.
            seed: seed of mini-batches and random losses.
            noise_key: key of the noise of private local training; None for the seed, as of a simulation.
            defenses: defences whose penalty is part of the local loss, None for `training_defenses`.
            spent: earlier result whose memory may be overwritten if the shapes match, because new memory costs a page
                fault for every 4 KiB.
        """
        return train_clients(
            self,
            model,
            private or {},
            cohort,
            self.local,
            seed=seed,
            noise_key=noise_key,
            defenses=self.training_defenses if defenses is None else defenses,
            spent=spent,
        )


@dataclass(frozen=True, kw_only=True)
class ExampleAlgorithm(DescentAlgorithm):
    """Clients that learn from examples of any kind."""

    def encode(self, features: Tensor, labels: Tensor, examples: Tensor) -> tuple[Self, Cohort]:
        """Clients whose examples lie in a pool, and the algorithm that reads them.

        Args:
            features: a pool ``(M, ...)``.
            labels: their labels ``(M, ...)``.
            examples: ``(B, N)`` int64 indices of each client's examples in the pool, padded with -1 at the end.
        """
        raise NotImplementedError(f"{type(self).__name__} must encode examples")

    def trained(self, model: Model) -> Parameters:
        """The tensors of a model that clients train, without e.g. the statistics of batch norms."""
        return dict(model)

    def simulate_examples(
        self, model: Model, features: Tensor, labels: Tensor, examples: Tensor, /, *, generator: torch.Generator
    ) -> Parameters:
        """Trains simulated clients from the same global model.

        Args:
            model: the global model.
            features: a pool ``(M, ...)``, see `encode`.
            labels: their labels ``(M, ...)``.
            examples: ``(B, N)`` indices of each client's examples in the pool, padded with -1.
            generator: source of the order of mini-batches.

        Returns:
            Deltas by parameter name, ``(B, *shape)``; zero for the rows of a table that a client does not have.
        """
        seed = int(torch.randint(2**62, (), generator=generator))
        algorithm, cohort = self.encode(features, labels, examples)
        deltas = algorithm.train(self.trained(model), cohort, seed=seed).deltas
        # A client's delta of a table has its own rows only; put them into a whole table.
        for name, rows in cohort.rows.items():
            table = torch.zeros(len(rows), *model[name].shape)
            client, slot = (rows >= 0).nonzero(as_tuple=True)
            table[client, rows[client, slot]] = deltas[name][client, slot]
            deltas = {**deltas, name: table}
        return deltas


@dataclass(frozen=True, kw_only=True)
class RecordAlgorithm(ExampleAlgorithm, abc.ABC):
    """Clients that descend a mean of losses, each of one record of a class, so that the part of a record is known."""

    @property
    @abc.abstractmethod
    def independent(self) -> bool:
        """Whether the loss of a record depends on no other record of its batch."""

    @abc.abstractmethod
    def record_losses(self, parameters: Parameters, inputs: Tensor, labels: Tensor) -> Tensor:
        """``(M,)`` losses of single records without dropout.

        Args:
            parameters: one model, ``shape`` each.
            inputs: ``(M, *shape)`` records.
            labels: ``(M,)`` their classes.
        """

    def gradient_work(self, inputs: Tensor) -> float:
        """Operations, roughly, for the gradient of one of some records ``(M, *shape)``; 0 where that is little."""
        return 0.0

    def read(self, records: Tensor) -> Tensor:
        """What the trained network reads of records ``(M, *shape)``: themselves, or what a frozen one computes."""
        return records

    def record_sizes(self, inputs: Tensor) -> Tensor:
        """``(M,)`` float32 weight of each record in the mean over a batch: 1, or the number of its predictions."""
        return torch.ones(len(inputs))
