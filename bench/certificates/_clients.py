"""Clients of one round that train in plain torch, what they may do to an update, and what is certified of them.

They send differences of parameters, so that rounding is that of a real system.
"""

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.certificates import Counts
from fedleak.attacks.reconstruction import LinearInversion
from fedleak.attacks.reconstruction.linear_layer import LinearEstimate
from fedleak.client.image_classifier import ImageClassifierAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView

Update = dict[str, Tensor]
"""Difference of each parameter."""
Updates = list[Update]
"""Those of all clients."""
Sent = Callable[[Updates, torch.Generator], Updates]
"""From the clients' updates to what they send."""
Loss = Callable[[Tensor, Tensor], Tensor]
Change = Callable[[Tensor, torch.Generator], Tensor]
Keys = Callable[[Tensor], Sequence[bytes] | Sequence[tuple[int, ...]]]
"""From records ``(M, D)`` to what is equal for equal records."""


def network_of(inputs: int, *, neurons: int, layers: int, classes: int) -> tuple[nn.Sequential, dict[str, str]]:
    """A classifier with hidden layers, and its parameters' names in a recording by their names here."""
    modules: list[nn.Module] = []
    names = dict[str, str]()
    width = inputs
    for layer in range(layers):
        names |= {f"{2 * layer}.{part}": f"body.{2 * layer + 1}.{part}" for part in ("weight", "bias")}
        modules += [nn.Linear(width, neurons), nn.ReLU()]
        width = neurons
    names |= {f"{2 * layers}.{part}": f"output.{part}" for part in ("weight", "bias")}
    return nn.Sequential(*modules, nn.Linear(width, classes)), names


def trained(
    model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], *, loss: Loss, rate: float, decay: float = 0.0
) -> Update:
    """Difference of parameters after a step on each batch of records and classes."""
    network = copy.deepcopy(model)
    for records, labels in batches:
        parameters = list(network.parameters())
        gradients = torch.autograd.grad(loss(network(records), labels), parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(rate * (gradient + decay * parameter))
    before = dict(model.named_parameters())
    return {name: (value - before[name]).detach() for name, value in network.named_parameters()}


def train_together(
    model: nn.Module, update_of: Callable[[Tensor], Update], holdings: Sequence[Tensor], *, rounds: int
) -> None:
    """Changes a model by the mean update of all clients, in each round.

    Args:
        model: of all clients.
        update_of: from the numbers of a client's records to its update of the model.
        holdings: numbers of the records of each client.
        rounds: number of rounds.
    """
    for _ in range(rounds):
        updates = [update_of(numbers) for numbers in holdings]
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.add_(torch.stack([update[name] for update in updates]).mean(0))


def summed(updates: Updates, holdings: Sequence[Tensor], *, clients: int) -> tuple[Updates, list[Tensor]]:
    """Sums of the updates of as many clients each, and the numbers of their records together."""
    groups = [range(start, start + clients) for start in range(0, len(updates), clients)]
    sums: Updates = []
    for group in groups:
        sums.append({name: torch.stack([updates[client][name] for client in group]).sum(0) for name in updates[0]})
    return sums, [torch.cat([holdings[client] for client in group]) for group in groups]


def view_of(
    model: nn.Module,
    updates: Updates,
    names: Mapping[str, str],
    *,
    count: int,
    learner: ImageClassifierAlgorithm | None,
    auxiliary: Mapping[str, Tensor],
) -> RoundView:
    """What the server sees, and believes of the number of each client's records and of the clients' algorithm.

    Args:
        model: that the server sent.
        updates: that it got.
        names: of the parameters in a recording, by those of the model.
        count: number of records that each client reports.
        learner: the clients' algorithm as declared; None if it is unknown.
        auxiliary: data that the server has.
    """
    return RoundView(
        round=0,
        pseudonyms=torch.arange(len(updates)),
        example_counts=torch.full((len(updates),), count),
        deltas={names[name]: torch.stack([update[name] for update in updates]) for name in names},
        model={names[name]: value.detach() for name, value in model.named_parameters()},
        algorithm=learner,
        auxiliary=auxiliary,
    )


def counted(
    attack: LinearInversion, view: RoundView, holdings: Sequence[Tensor], records: Tensor, keys: Keys
) -> Counts:
    """Certified, false and recovered records of all clients.

    Args:
        attack: the attack.
        view: what the server sees.
        holdings: numbers of the records of each client.
        records: ``(N, D)`` of all clients, as the network gets them.
        keys: of records.
    """
    total = sum(len(numbers) for numbers in holdings)
    try:
        estimate = attack(view, generator=generator_for(0, "attack"))
    except ViewError as error:
        return Counts(records=total, refusal=str(error))
    assert isinstance(estimate, LinearEstimate)
    counts = Counts(records=total)
    for victim, numbers in enumerate(holdings):
        count = int(estimate.count[victim])
        guesses, is_certain = estimate.records[victim, :count].flatten(1), estimate.certified[victim, :count]
        true = Counter(keys(records[numbers]))
        certain = Counter(keys(guesses[is_certain]))
        counts += Counts(
            certified=certain.total(),
            false=(certain - true).total(),
            recovered=(Counter(keys(guesses)) & true).total(),
        )
    return counts


# What clients may do to an update before they send it.


def each(change: Change) -> Sent:
    """A change of each tensor of each client by itself."""

    def changed(updates: Updates, draws: torch.Generator) -> Updates:
        return [{name: change(value, draws) for name, value in update.items()} for update in updates]

    return changed


def quantised(bits: int, *, by_row: bool = False, at_random: bool = False) -> Sent:
    """Each tensor, or row, on a symmetric grid of its own."""

    def change(value: Tensor, draws: torch.Generator) -> Tensor:
        rows = value.flatten(1) if value.dim() > 1 else value[None]
        largest = rows.abs().amax(1, keepdim=True) if by_row else rows.abs().max()
        step = largest / (2 ** (bits - 1) - 1) + 1e-30
        shift = torch.rand(rows.shape, generator=draws).to(rows) if at_random else torch.full_like(rows, 0.5)
        rounded: Tensor = (rows / step + shift).floor() * step
        return rounded.reshape(value.shape)

    return each(change)


def quantised_between(bits: int) -> Sent:
    """Each tensor on a grid from its smallest to its largest number."""

    def change(value: Tensor, _: torch.Generator) -> Tensor:
        low, high = value.min(), value.max()
        step = (high - low) / (2**bits - 1) + 1e-30
        rounded: Tensor = ((value - low) / step).round() * step + low
        return rounded

    return each(change)


def stored_as(dtype: torch.dtype) -> Sent:
    return each(lambda value, _: value.to(dtype).to(value.dtype))


def noisy(deviation: float) -> Sent:
    return each(lambda value, draws: value + deviation * torch.randn(value.shape, generator=draws).to(value))


def sparse(share: float) -> Sent:
    """Only the largest numbers of an update, over all its tensors."""

    def changed(updates: Updates, _: torch.Generator) -> Updates:
        made: Updates = []
        for update in updates:
            sizes = torch.cat([value.flatten().abs() for value in update.values()])
            least = sizes.topk(int(share * len(sizes))).values[-1]
            made.append({name: value * (value.abs() >= least) for name, value in update.items()})
        return made

    return changed


def masked(share: float) -> Sent:
    """A random share of the numbers."""
    return each(lambda value, draws: value * (torch.rand(value.shape, generator=draws) < share))


def clipped(norm: float) -> Sent:
    def changed(updates: Updates, _: torch.Generator) -> Updates:
        made: Updates = []
        for update in updates:
            size = torch.cat([value.flatten() for value in update.values()]).norm()
            made.append({name: value * min(1.0, norm / float(size)) for name, value in update.items()})
        return made

    return changed


def squared_error(outputs: Tensor, labels: Tensor) -> Tensor:
    return (outputs - functional.one_hot(labels, outputs.shape[1])).square().mean()
