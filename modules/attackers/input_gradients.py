"""Training on given inputs, through which gradients reach the inputs."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedleak.client.cohort import Cohort
from fedleak.client.engine.batches import batch_schedule
from fedleak.client.engine.differentiable_training import Step, by_autograd, train_differentiably
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.network import NetworkAlgorithm

Models = Mapping[str, Tensor]


def step_examples(algorithm: NetworkAlgorithm, example_counts: Tensor, *, generator: torch.Generator) -> Tensor:
    """``(B, S, n)`` int64 numbers of each simulated client's examples in its S steps, padded with -1."""
    width = int(example_counts.max())
    mask = torch.arange(width) < example_counts[:, None]
    local = algorithm.local
    seed = int(torch.randint(2**62, (), generator=generator))
    # With full batches, every step has all examples.
    if local.batch_size is None:
        full_batch = torch.arange(width).expand(mask.shape).masked_fill(~mask, -1)
        return full_batch[:, None].expand(-1, local.epochs, -1)
    cohort = Cohort(0, torch.arange(len(mask)), {}, mask)
    return pad_sequence(batch_schedule(cohort, local, seed=seed), batch_first=True, padding_value=-1)


def simulated_updates(
    algorithm: NetworkAlgorithm, models: Models, inputs: Tensor, labels: Tensor, batches: Tensor
) -> dict[str, Tensor]:
    """Deltas ``(B, *shape)`` by parameter of simulated clients; gradients reach `inputs`.

    Args:
        algorithm: what the clients run.
        models: the model that each client received, ``(B, *shape)`` by parameter.
        inputs: ``(B, M, *shape)`` examples of each client.
        labels: ``(B, M)`` their classes.
        batches: ``(B, S, n)`` numbers of the examples in each step, see `step_examples`.
    """

    def step(batch: Tensor) -> Step:
        def loss(parameters: Parameters, fields: Parameters) -> Tensor:
            return _loss(algorithm, parameters, fields["inputs"], labels, batch, {})

        return by_autograd(loss)

    start = algorithm.trained(models)
    steps = [step(batch) for batch in batches.unbind(1)]
    after = train_differentiably(start, {"inputs": inputs}, steps, algorithm.local)
    return {name: after[name] - value for name, value in start.items()}


def input_gradients(
    algorithm: NetworkAlgorithm,
    models: Models,
    inputs: Tensor,
    labels: Tensor,
    examples: Tensor,
    more: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Gradients ``(B, *shape)`` of each client's mean loss on ``examples (B, n)``; gradients reach the inputs.

    Args:
        algorithm: what the clients run.
        models: the model that each client received, ``(B, *shape)`` by parameter.
        inputs: ``(B, M, *shape)`` examples of each client.
        labels: ``(B, M)`` their classes, or ``(B, M, K)`` shares.
        examples: ``(B, n)`` numbers of the examples in the step, padded with -1.
        more: further fields of the examples, ``(B, M, ...)`` each.
    """
    start = {name: value.detach().requires_grad_() for name, value in algorithm.trained(models).items()}
    loss = _loss(algorithm, start, inputs, labels, examples, more or {})
    gradients = torch.autograd.grad(loss, list(start.values()), create_graph=True)
    return dict(zip(start, gradients, strict=True))


def _loss(
    algorithm: NetworkAlgorithm,
    parameters: Parameters,
    inputs: Tensor,
    labels: Tensor,
    batch: Tensor,
    more: Mapping[str, Tensor],
) -> Tensor:
    """Sum of the clients' mean losses on ``batch (B, n)`` of their own examples, padded with -1."""
    client = torch.arange(len(batch), device=batch.device)[:, None]
    chosen = batch.clamp(min=0)
    names = algorithm.names
    fields = {names[0]: inputs[client, chosen], names[1]: labels[client, chosen]}
    fields |= {name: value[client, chosen] for name, value in more.items()}
    return algorithm.stacked_loss(parameters, fields, batch >= 0).sum()
