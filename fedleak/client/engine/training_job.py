"""Input of local training, shared by both engines."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedleak.client.cohort import Cohort
from fedleak.client.engine.batches import step_draws
from fedleak.client.engine.fast.gradients import Gradients, Parameters
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.engine.task import POSITION, Task
from fedleak.core.errors import require
from fedleak.defenses.base import Defense, LocalStep, Update


@dataclass(frozen=True)
class TrainingJob:
    """Cohort to train, with its options and the buffers of its result; `losses` are those of the result."""

    task: Task
    fast: Gradients | None
    public: Mapping[str, Tensor]
    private: Mapping[str, Tensor]
    cohort: Cohort
    local: LocalTraining
    defenses: Sequence[Defense]
    schedule: list[Tensor] | None
    draws: Tensor | None
    result: Update
    losses: Tensor
    elements: dict[str, Tensor] = field(default_factory=dict)
    """``(C,)`` number of entries that each client trains, by public parameter, see `own_elements`."""
    noise: Sequence[torch.Generator] = ()
    """Source of each client's noise in private local training."""
    changes: Sequence[torch.Generator] = ()
    """Source of each client's draws for defences that change local steps; empty without one."""

    def elements_of(self, positions: Tensor) -> dict[str, Tensor]:
        """Number of entries of each public parameter that the clients at `positions` train."""
        return {name: value[positions] for name, value in self.elements.items()}

    def draws_of(self, positions: Tensor) -> Tensor | None:
        """Seeds of the draws of the clients at `positions`; None if the loss is not random."""
        return None if self.draws is None else self.draws[positions]


def received_by(job: TrainingJob, part: Cohort) -> Parameters:
    """Public parameters that each client of a chunk receives, ``(C, *shape)``, with only its rows of row parameters."""
    clients = len(part)
    received = {}
    for name, value in job.public.items():
        if name in part.rows:
            received[name] = value[part.rows[name].clamp(min=0)]
        else:
            received[name] = value.expand(clients, *value.shape)
    return received


def steps_of(
    part: Cohort, local: LocalTraining, schedule: list[Tensor] | None, draws: Tensor | None
) -> Iterator[tuple[Parameters, Tensor, list[int]]]:
    """Examples and mask of every step, and the clients whose last step it is."""
    everyone = list(range(len(part)))
    if schedule is None:
        for epoch in range(local.epochs):
            drawn = step_draws(draws, epoch, part.mask)
            finished = everyone if epoch == local.epochs - 1 else []
            yield {**part.examples, **drawn}, part.mask, finished
        return
    last = [plan.shape[0] - 1 for plan in schedule]
    for step in range(max(last) + 1):
        # Clients without a step left get a batch of padding alone.
        idle = torch.full_like(schedule[0][0], -1)
        index = torch.stack([plan[step] if step < plan.shape[0] else idle for plan in schedule])
        index = index.to(part.mask.device)
        mask = index >= 0
        index = index.clamp(min=0)
        client = torch.arange(len(part), device=index.device)[:, None]
        examples = {name: value[client, index] for name, value in part.examples.items()}
        examples |= {POSITION: index, **step_draws(draws, step, mask)}
        yield examples, mask, [i for i in everyone if last[i] == step]


def own_elements(public: Mapping[str, Tensor], rows: Mapping[str, Tensor], clients: int) -> dict[str, Tensor]:
    """``(C,)`` number of entries of each public parameter that a client trains; of a table, those of its rows."""
    device = next(iter(public.values())).device
    elements = {}
    for name, value in public.items():
        if name in rows:
            elements[name] = (rows[name] >= 0).sum(1) * value[0].numel()
        else:
            elements[name] = torch.full((clients,), value.numel(), device=device)
    return elements


def penalties_of(
    job: TrainingJob, public: Parameters, received: Parameters, elements: Mapping[str, Tensor]
) -> Tensor | float:
    """``(C,)`` penalties that defences add to the losses; 0.0 without such a defence."""
    terms = [defense.penalty(public, received, elements) for defense in job.defenses]
    return sum((term for term in terms if term is not None), start=0.0)


def defended_step(
    job: TrainingJob, leaves: Parameters, batch: Parameters, mask: Tensor, client: int
) -> tuple[LocalStep | None, Parameters]:
    """One client's step and its examples, as defences change them; None and as they are without such a defence.

    Raises:
        InputError: the client does not learn to classify images.
    """
    if not job.changes:
        return None, batch
    step = job.task.local_step({name: value.detach() for name, value in leaves.items()}, batch, mask)
    names = ", ".join(type(defense).__name__ for defense in job.defenses if defense.changes_steps())
    expected = f"for {names}, clients that learn to classify images"
    require(step is not None, expected, type(job.task).__name__, "Use FederatedClassifier, or leave the defence out.")
    assert step is not None
    for defense in job.defenses:
        step = defense.change_examples(step, job.changes[client])
    return step, {**batch, **job.task.fields_of(step)}


def loss_and_gradients(
    written: tuple[Tensor, Parameters] | None, loss: Callable[[], Tensor], penalties: Tensor | float, leaves: Parameters
) -> tuple[Tensor, Parameters]:
    """Losses with penalties and the gradient of every leaf: the `written` ones, or those of autograd if None."""
    if written is None:
        losses = loss() + penalties
        return losses, autograd_gradients(losses.sum(), leaves)
    losses, grads = written
    if isinstance(penalties, Tensor) and penalties.requires_grad:
        losses = losses + penalties.detach()
        # Hand-written gradients are of the loss alone; autograd adds those of the penalties.
        by_penalties = autograd_gradients(penalties.sum(), leaves)
        grads = {name: grads[name] + gradient for name, gradient in by_penalties.items()}
    return losses, grads


def autograd_gradients(loss: Tensor, leaves: Parameters) -> Parameters:
    """Gradient of every leaf, in the memory format of the leaf."""
    grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    by_leaf = {}
    for (name, leaf), grad in zip(leaves.items(), grads, strict=True):
        layout = torch.contiguous_format if leaf.is_contiguous() else torch.channels_last
        if grad is None:
            by_leaf[name] = torch.zeros_like(leaf)
        else:
            by_leaf[name] = grad.contiguous(memory_format=layout)
    return by_leaf
