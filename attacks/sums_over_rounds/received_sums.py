"""The sums that a server received over rounds, who took part in each, and what one sum says of its clients' mean."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.client.algorithm import ExampleAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.history import History
from fedleak.core.release import Release
from fedleak.core.view import RoundView, View


@dataclass(frozen=True)
class Participants:
    """The clients of all sums of a recording.

    Attributes:
        clients: ``(C,)`` pseudonyms, ascending.
        examples: ``(C,)`` number of examples that each reports, in its last message; the rounded mean over the others
            for clients of whom the server has none.
    """

    clients: Tensor
    examples: Tensor

    @classmethod
    def of(cls, view: History) -> "Participants":
        """Those of a history.

        Raises:
            ViewError: its messages are no sums.
        """
        if view.participants is None:
            raise ViewError("expected sums of several clients' updates, got updates of single clients")
        clients = torch.unique(view.participants[view.participants >= 0])
        examples = torch.zeros(len(clients), dtype=torch.int64)
        is_participant = torch.isin(view.pseudonyms, clients)
        client = torch.searchsorted(clients, view.pseudonyms[is_participant])
        examples[client] = view.example_counts[is_participant]
        reported = examples > 0
        usual = torch.tensor(1)
        if bool(reported.any()):
            usual = examples[reported].double().mean().round().long()
        return cls(clients, examples.where(reported, usual.clamp(min=1)))

    def matrix(self, groups: Tensor) -> Tensor:
        """``(G, C)`` float64, 1 where a client takes part in each of the sums with participants ``groups (G, P)``."""
        taking = torch.zeros(len(groups), len(self.clients), dtype=torch.float64)
        # Groups are padded with negative numbers, which add 0 to some client.
        client = torch.searchsorted(self.clients, groups.clamp(min=0)).clamp(max=len(self.clients) - 1)
        return taking.scatter_add_(1, client, (groups >= 0).double()).clamp(max=1)


@dataclass(frozen=True)
class RoundSums:
    """The distinct sums of one round, each as the update of one client that has all the examples.

    A client that makes S_i steps sends about ``-rate * S_i`` times its mean gradient. A sum is multiplied by ``S /
    sum_i S_i``, S being the mean number of steps, so that it is the update of one client that makes S steps on all
    examples at once, and whose shares are the mean of the clients' shares with `weights`.

    Attributes:
        view: one victim for each of the G sums.
        taking: ``(G, C)`` 1 where a client takes part.
        weights: ``(G, C)`` weight of each client in the mean, each row summing to one.
    """

    view: RoundView
    taking: Tensor
    weights: Tensor


def each_round_of_sums(
    view: History, participants: Participants, most: int | None = None, *, batches: bool = False
) -> Iterator[RoundSums]:
    """The sums of each of the first `most` rounds (None for all), ascending; other arguments as of `round_sums`."""
    for number, part in enumerate(view.each_round()):
        if number == most:
            return
        yield round_sums(part, participants, batches=batches)


def round_sums(view: RoundView, participants: Participants, *, batches: bool = False) -> RoundSums:
    """The sums of a round.

    With `batches`, where clients make one pass in mini-batches, the one client makes it too, over all examples: as many
    steps as the participants together.

    Raises:
        ViewError: its messages are no sums.
    """
    if view.participants is None:
        raise ViewError("expected sums of several clients' updates, got updates of single clients")
    chosen = view.select(view.distinct_messages()[0])
    assert chosen.participants is not None
    taking = participants.matrix(chosen.participants)
    examples = participants.examples.double()
    totals = (taking @ examples).round().long()
    # A client counts by its number of steps S_i.
    client_steps = taking * _steps(view, participants.examples)
    algorithm = view.algorithm
    if batches and isinstance(algorithm, ExampleAlgorithm) and algorithm.single_pass_batch is not None:
        steps = _steps(view, totals)
    else:
        steps = (client_steps.sum() / taking.sum()).round()
        algorithm = _in_whole_batches(algorithm, int(steps))
    # S / sum_i S_i. The noise and the clip of a release are one number, so all sums must have one factor.
    factor = steps / client_steps.sum(1)
    is_noisy = any(release.noise_scale for release in view.releases)
    if is_noisy and bool((factor - factor[0]).abs().max() > 1e-9 * factor[0]):
        raise ViewError("expected sums of one number of steps, under noise; got clients with different numbers")
    chosen = dataclasses.replace(
        chosen,
        deltas={name: delta * _per_sum(factor, delta) for name, delta in chosen.deltas.items()},
        example_counts=totals,
        releases=tuple(_scaled(release, float(factor[0])) for release in chosen.releases),
        participants=None,
        algorithm=algorithm,
    )
    return RoundSums(chosen, taking, client_steps / client_steps.sum(1, keepdim=True))


def _in_whole_batches(algorithm: object | None, steps: int) -> object | None:
    """The algorithm of a client that makes `steps` steps on all its examples."""
    if not isinstance(algorithm, ExampleAlgorithm):
        return algorithm
    local = dataclasses.replace(algorithm.local, batch_size=None, epochs=steps, updates=None)
    return dataclasses.replace(algorithm, local=local)


def _steps(view: View, examples: Tensor) -> Tensor:
    """``(N,)`` float64 steps of clients with numbers of examples; 1 where the algorithm is unknown."""
    if isinstance(view.algorithm, ExampleAlgorithm):
        return view.algorithm.steps(examples).double().clamp(min=1)
    return torch.ones(len(examples), dtype=torch.float64)


def _per_sum(factor: Tensor, delta: Tensor) -> Tensor:
    """Factors ``(G,)`` in the type of a delta ``(G, *shape)``, with which it can be multiplied."""
    return factor.to(delta).reshape(-1, *[1] * (delta.dim() - 1))


def _scaled(release: Release, factor: float) -> Release:
    clip = None if release.clip is None else release.clip * factor
    return dataclasses.replace(release, noise_scale=release.noise_scale * factor, clip=clip)
