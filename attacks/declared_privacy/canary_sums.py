"""Sums over a canary's messages of all rounds, from which the test of its two worlds follows."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.core.errors import ViewError
from fedleak.core.history import History
from fedleak.core.view import CANARY_MINUS, CANARY_PLUS, CANARY_PSEUDONYMS, View


@dataclass(frozen=True)
class CanarySums:
    """Sums over all messages of each canary, with a and b what it would send in its two worlds, after the clip.

    Attributes:
        clients: ``(N,)`` pseudonyms of the canaries, ascending.
        inner: ``(N,)`` inner product of ``message - (a + b) / 2`` and the direction ``a - b``.
        squares: ``(N,)`` squared distance ``|a - b|^2`` of the worlds.
        rest: ``(N,)`` squared length of ``message - (a + b) / 2`` outside of the direction.
        numbers: ``(N,)`` count of numbers in the messages.
        sends: ``(N,)`` number of messages.
        clip: norm to which updates are clipped; None without a clip.
        noise: declared standard deviation of the noise.
        rounds: number of rounds in which canaries sent.
    """

    clients: Tensor
    inner: Tensor
    squares: Tensor
    rest: Tensor
    numbers: Tensor
    sends: Tensor
    clip: float | None
    noise: float
    rounds: int


def canary_sums(view: History) -> CanarySums:
    """The sums of all canaries of a view.

    Raises:
        ViewError: no message is of a canary, or what it would send was not recorded.
    """
    sums_of: dict[int, list[float]] = {}
    sends_in_round: dict[int, int] = {}
    clip: float | None = None
    noise = 0.0
    messages_of_canaries = torch.isin(view.pseudonyms, view.auxiliary[CANARY_PSEUDONYMS]).nonzero().flatten()
    for part in view.each_part(messages_of_canaries):
        noised = [name for name in part.deltas if part.noise_scale(name) > 0]
        if not noised:
            noised = list(part.deltas)
        if not any(f"{CANARY_PLUS}{name}" in part.priors for name in noised):
            raise ViewError("the recording lacks what canaries would send in both worlds (prior/canary/...)")
        clip = part.clip(noised[0])
        noise = part.noise_scale(noised[0])
        # A round counts as often as a client's messages in it are summed.
        most = 1
        if part.messages is not None:
            most = int(part.messages.max())
        sends_in_round[part.round] = max(most, sends_in_round.get(part.round, 0))
        for client, sums in zip(part.pseudonyms.tolist(), _of_messages(part, noised).tolist(), strict=True):
            before = sums_of.get(client, [0.0] * len(sums))
            sums_of[client] = [new + old for new, old in zip(sums, before, strict=True)]
    if not sums_of:
        raise ViewError("no message in the recording is of a canary")
    clients = sorted(sums_of)
    inner, squares, rest, numbers, sends = torch.tensor([sums_of[client] for client in clients]).unbind(1)
    return CanarySums(
        clients=torch.tensor(clients, dtype=torch.int64),
        inner=inner,
        squares=squares,
        rest=rest,
        numbers=numbers,
        sends=sends,
        clip=clip,
        noise=noise,
        rounds=sum(sends_in_round.values()),
    )


def _of_messages(view: View, names: list[str]) -> Tensor:
    """``(V, 5)`` inner products, squares, rests, numbers and sends of one message of each client, over parameters."""
    plus = {name: _as_sent(view, name, CANARY_PLUS) for name in view.deltas}
    if any(name.startswith(CANARY_MINUS) for name in view.priors):
        minus = {name: _as_sent(view, name, CANARY_MINUS) for name in view.deltas}
    else:
        minus = {name: -update for name, update in plus.items()}  # of worlds that are opposite
    sums = torch.zeros(view.victims, 5, dtype=torch.float64)
    energy = torch.zeros(view.victims, dtype=torch.float64)
    for name in names:
        a = _clipped(view, name, plus)
        b = _clipped(view, name, minus)
        direction = (a - b).flatten(1).double()
        offset = (view.deltas[name] - (a + b) / 2).flatten(1).double()
        sums[:, 0] += (offset * direction).sum(1)
        sums[:, 1] += direction.square().sum(1)
        energy += offset.square().sum(1)
        numbers: Tensor | int = view.deltas[name][0].numel()
        if name in view.row_parameters and view.served is not None:  # the rest is padding
            numbers = view.served_mask.sum(1) * view.deltas[name][0, 0].numel()
        sums[:, 3] += numbers
    # Pythagoras: the energy outside of the direction.
    sums[:, 2] = (energy - sums[:, 0].square() / sums[:, 1].clamp(min=1e-300)).clamp(min=0)
    sums[:, 4] = 1
    return sums


def _as_sent(view: View, name: str, world: str) -> Tensor:
    """A canary's update in a world, with as many rows as the recorded delta."""
    delta = view.deltas[name]
    update = view.priors[f"{world}{name}"].float()
    if name not in view.row_parameters:
        return update
    padded = torch.zeros_like(delta)
    width = min(delta.shape[1], update.shape[1])
    padded[:, :width] = update[:, :width]
    return padded


def _clipped(view: View, name: str, deltas: Mapping[str, Tensor]) -> Tensor:
    factors = view.clip_factors(name, deltas).to(deltas[name])
    further_dimensions = [1] * (deltas[name].dim() - 1)
    return deltas[name] * factors.reshape(-1, *further_dimensions)
