"""Simulated training on given inputs, through which gradients reach the inputs."""

import abc
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from client.cohort import Cohort
from client.engine.batches import batch_schedule
from client.engine.differentiable_training import descend
from client.engine.fast.gradients import Parameters
from client.engine.local_hyperparameters import LocalTraining
from client.engine.network_task import NetworkTask
from protocol.errors import ViewError

_RECORDS_AT_ONCE = 128
"""Records whose losses or gradients are computed together."""


class InputSimulation(abc.ABC):
    """What makes a simulator with a network an `InvertibleSimulator`, and that of a classifier a `RecordSimulator`."""

    local: LocalTraining

    @property
    @abc.abstractmethod
    def task(self) -> NetworkTask:
        """The clients' training objective."""

    @abc.abstractmethod
    def trained(self, model: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of a model that the network trains."""

    def batches(self, example_counts: Tensor, *, generator: torch.Generator) -> Tensor:
        width = int(example_counts.max())
        mask = torch.arange(width) < example_counts[:, None]
        local, seed = self.local, int(torch.randint(2**62, (), generator=generator))
        if local.batch_size is None:
            whole = torch.arange(width).expand(mask.shape).masked_fill(~mask, -1)
            return whole[:, None].expand(-1, local.epochs, -1)
        cohort = Cohort(0, torch.arange(len(mask)), {}, mask)
        schedule = batch_schedule(
            cohort, batch_size=local.batch_size, epochs=local.epochs, seed=seed, updates=local.updates
        )
        return pad_sequence(schedule, batch_first=True, padding_value=-1)

    def simulate_inputs(
        self, models: Mapping[str, Tensor], inputs: Tensor, labels: Tensor, batches: Tensor
    ) -> dict[str, Tensor]:
        def step(batch: Tensor) -> Callable[[Parameters], Tensor]:
            return lambda parameters: self._loss_of(parameters, inputs, labels, batch)

        start = self.trained(models)
        after = descend(start, [step(batch) for batch in batches.unbind(1)], self.local)
        return {name: after[name] - value for name, value in start.items()}

    def input_gradients(
        self, models: Mapping[str, Tensor], inputs: Tensor, labels: Tensor, examples: Tensor
    ) -> dict[str, Tensor]:
        start = {name: value.detach().requires_grad_() for name, value in self.trained(models).items()}
        loss = self._loss_of(start, inputs, labels, examples)
        return dict(zip(start, torch.autograd.grad(loss, list(start.values()), create_graph=True), strict=True))

    @torch.no_grad()
    def record_losses(self, models: Mapping[str, Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
        task, own = self._of_single_records(), self.trained(models)
        parts = torch.split(torch.arange(len(labels)), _RECORDS_AT_ONCE)

        def losses(model: Parameters) -> Tensor:
            return torch.cat([task.record_losses(model, inputs[part], labels[part]) for part in parts])

        count = len(next(iter(own.values())))
        return torch.stack([losses({name: value[place] for name, value in own.items()}) for place in range(count)])

    def record_gradients(self, model: Mapping[str, Tensor], inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        task, own = self._of_single_records(), self.trained(model)

        def loss(parameters: Parameters, record: Tensor, label: Tensor) -> Tensor:
            return task.record_losses(parameters, record[None], label[None])[0]

        every = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0), chunk_size=_RECORDS_AT_ONCE)
        found: dict[str, Tensor] = every(own, inputs, labels)
        return found

    def weighted_gradient(
        self, model: Mapping[str, Tensor], inputs: Tensor, labels: Tensor, weights: Tensor
    ) -> dict[str, Tensor]:
        task = self._of_single_records()
        own = {name: value.detach().requires_grad_() for name, value in self.trained(model).items()}
        total = {name: torch.zeros_like(value) for name, value in own.items()}
        for part in torch.split(torch.arange(len(labels)), _RECORDS_AT_ONCE):
            loss = weights[part] @ task.record_losses(own, inputs[part], labels[part])
            for value, gradient in zip(total.values(), torch.autograd.grad(loss, list(own.values())), strict=True):
                value += gradient
        return total

    def _of_single_records(self) -> NetworkTask:
        """The task, after a check that records do not influence each other."""
        task = self.task
        if any("BatchNorm" in type(layer).__name__ for layer in task.network.modules()):
            raise ViewError("expected clients whose records do not influence each other, got a network with batch norm")
        return task

    def _loss_of(self, parameters: Parameters, inputs: Tensor, labels: Tensor, batch: Tensor) -> Tensor:
        """Sum of the clients' mean losses on ``batch (B, n)`` of their own examples, padded with -1."""
        client = torch.arange(len(batch), device=batch.device)[:, None]
        chosen = batch.clamp(min=0)
        names = self.task.names
        fields = {names[0]: inputs[client, chosen], names[1]: labels[client, chosen]}
        return self.task.stacked_loss(parameters, fields, batch >= 0).sum()
