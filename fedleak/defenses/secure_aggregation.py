"""Secure aggregation: the server sees sums over several clients only."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from fedleak.core.errors import InputError, require
from fedleak.core.ranges import PositiveInt
from fedleak.core.release import Release
from fedleak.defenses.base import Defense, Update


class _Aggregate:
    """An aggregate of participants and the sum of their noise.

    Attributes:
        summed: number of participants whose updates are in the sum; None for all.
    """

    summed: int | None = None

    def __init__(self, participants: int, targets: int, noise_scale: float | None) -> None:
        if not 1 <= targets <= participants or (noise_scale or 0) < 0:
            raise InputError(
                expected=f"{type(self).__name__} with 1 to `participants` targets and noise_scale of 0 or more",
                found=f"{targets} of {participants} participants and {noise_scale or 0:g}",
                way_out="RAIFLE's table XI has one target and 10 to 1,000 participants.",
            )
        self.participants = participants
        self.noise_scale = noise_scale
        self._earlier: tuple[Defense, ...] = ()

    def check_order(self, earlier: Sequence[Defense]) -> None:
        self._earlier = tuple(earlier)

    def others_scales(self, parameters: Iterable[str]) -> dict[str, float]:
        """Standard deviation of the sum of the other participants' noise, by parameter."""
        names = tuple(parameters)
        # The sum of n - 1 independent draws has sqrt(n - 1) times the deviation of one.
        factor = (self.participants - 1) ** 0.5
        if self.noise_scale is not None:
            return dict.fromkeys(names, factor * self.noise_scale)
        releases: list[Release] = []
        for defense in self._earlier:
            releases.extend(defense.releases(names))
        # Several defences may add noise to one parameter: their variances add up.
        scales = {}
        for name in names:
            of_one = math.hypot(*(release.noise_scale for release in releases if name in release.parameters))
            scales[name] = factor * of_one
        return scales

    def releases(self, parameters: tuple[str, ...]) -> tuple[Release, ...]:
        """The others' noise; parameters with equal noise in one release."""
        if not parameters:  # the caller asks whether there is noise at all
            return (Release(noise_scale=self.noise_scale or 0.0),)
        scales = self.others_scales(parameters)
        return tuple(
            Release(
                noise_scale=scale,
                parameters=tuple(name for name in parameters if scales[name] == scale),
                participants=self.summed or self.participants,
            )
            for scale in dict.fromkeys(scales.values())
        )


class SecureAggregation(_Aggregate, Defense):
    """Secure aggregation in which all participants but one send a zero update, by the server's manipulation.

    With features that are zero for all clients but the target, the sum is the target's update plus the noise of the
    other participants, N(0, (n - 1) sigma^2); the target's own is added by the defences before this one. Each client of
    the cohort is the target of its own aggregate.

    Args:
        participants: clients in an aggregate, including the target.
        noise_scale: standard deviation of each participant's noise; None for that of the defences before this one, as
            they make it public.

    References:
        [Pham25], section VII.B.
    """

    summed = 1

    def __init__(self, *, participants: int, noise_scale: float | None = None) -> None:
        super().__init__(participants, 1, noise_scale)

    def protect(self, update: Update, generators: Callable[[int], torch.Generator]) -> Update:
        if update.rows:
            raise InputError(
                expected="an update without row parameters under SecureAggregation",
                found=", ".join(update.rows),
                way_out="Use a learner whose whole update is sent, e.g. FPDGD.",
            )
        scales = {name: scale for name, scale in self.others_scales(update.deltas).items() if scale}
        if not scales:
            return update
        deltas = dict(update.deltas)
        for name, scale in scales.items():
            deltas[name] = update.deltas[name].clone()
            for client, client_delta in enumerate(deltas[name]):
                draw = torch.randn(client_delta.shape, generator=generators(client))
                client_delta += scale * draw.to(client_delta)
        return dataclasses.replace(update, deltas=deltas)


class SecureSum(_Aggregate, Defense):
    """Secure aggregation: the server receives sums over consecutive clients of a cohort; the training is unchanged.

    The server attacks the first `targets` clients of each aggregate: the recording holds the aggregate's sum once for
    each of them, and nothing about the others.

    Args:
        participants: clients in an aggregate.
        targets: attacked clients in each aggregate.
        noise_scale: standard deviation of each participant's noise; None for that of the defences before this one, as
            they make it public.

    References:
        [Pham25], section VII.B.
    """

    joint = True

    def __init__(self, *, participants: int, targets: int = 1, noise_scale: float | None = None) -> None:
        super().__init__(participants, targets, noise_scale)
        self.targets = targets

    def noises_whole(self, parameters: tuple[str, ...]) -> tuple[str, ...]:
        """All: the masks of secure aggregation cover every number, so a client sends whole tables."""
        return parameters

    def contributors(self, clients: int) -> Tensor:
        return torch.arange(clients).reshape(-1, self.participants).repeat_interleave(self.targets, 0)

    def server_sees(self, update: Update) -> tuple[Update, Tensor | None]:
        """The sums, once for each target; see `Defense.server_sees`.

        Raises:
            InputError: the cohort cannot be split into aggregates, or has row parameters.
        """
        clients = len(next(iter(update.deltas.values())))
        if update.rows or clients % self.participants:
            name = type(self).__name__
            rows = f" and rows of {', '.join(update.rows)}" if update.rows else ""
            raise InputError(
                expected=f"cohorts of a multiple of {self.participants} clients whose whole update is sent",
                found=f"{clients} clients{rows}",
                way_out=f"Set clients_per_round to a multiple of {name}.participants; use FPDGD.",
            )
        # Consecutive clients are one aggregate; its sum is seen once for each of its targets, its first clients.
        sums = {}
        for name, delta in update.deltas.items():
            by_aggregate = delta.reshape(-1, self.participants, *delta.shape[1:])
            sums[name] = by_aggregate.sum(1).repeat_interleave(self.targets, 0)
        positions = torch.arange(clients).reshape(-1, self.participants)[:, : self.targets].flatten()
        sent = None if update.sent is None else update.sent[positions]
        numbers = None if update.clients is None else update.clients[positions]
        return dataclasses.replace(update, deltas=sums, sent=sent, clients=numbers), positions


class PerElementSum(SecureSum):
    """Secure aggregation that reveals a number of the sum only where enough clients contribute to it.

    With the updates ``d_c`` of the n clients of an aggregate, the server gets
    ``s_j = [sum_c [d_cj != 0] >= t] * sum_c d_cj`` for each number j: zero where fewer than t of them sent a number
    other than zero. It hides what only few clients change: a row of a table of words, the input of a rare category, a
    neuron that one record excites. Where all clients change all numbers, e.g. under noise, it is `SecureSum`.

    The global model is trained on the same sums, so numbers below the threshold do not train it. Zeros that a defence
    after this one makes are counted too in what the server sees, but not in the training: let it be the last.

    Args:
        participants: clients n in an aggregate.
        threshold: least number t of clients that send a number other than zero.
        targets: attacked clients in each aggregate.
        noise_scale: standard deviation of each participant's noise; None for that of the defences before this one, as
            they make it public.

    Raises:
        InputError: the threshold is not between 1 and `participants`.

    >>> sent = Update({"w": torch.tensor([[1.0, 0.0, 2.0], [3.0, 4.0, 0.0]])})
    >>> seen, _ = PerElementSum(participants=2, threshold=2).server_sees(sent)
    >>> seen.deltas["w"].tolist()
    [[4.0, 0.0, 0.0]]

    References:
        [Suimon25]: the rule, and a protocol for it.
    """

    def __init__(
        self,
        *,
        participants: int,
        threshold: PositiveInt = 2,
        targets: int = 1,
        noise_scale: float | None = None,
    ) -> None:
        super().__init__(participants=participants, targets=targets, noise_scale=noise_scale)
        require(
            1 <= threshold <= participants,
            "PerElementSum.threshold from 1 to `participants`",
            f"{threshold} of {participants}",
            "With 1 it is SecureSum.",
        )
        self.threshold = threshold

    def protect(self, update: Update, generators: Callable[[int], torch.Generator]) -> Update:
        """Zero in all updates of an aggregate where too few are not; their weighted mean is then that of the sums."""
        if update.rows:
            return update  # refused when the server gets them
        deltas = {name: value * self._shown(value) for name, value in update.deltas.items()}
        return dataclasses.replace(update, deltas=deltas)

    def server_sees(self, update: Update) -> tuple[Update, Tensor | None]:
        """The sums where enough clients contribute, zero elsewhere; see `SecureSum.server_sees`."""
        return super().server_sees(self.protect(update, lambda _: torch.Generator()))

    def _shown(self, delta: Tensor) -> Tensor:
        """``(C, *shape)`` whether enough clients of each one's aggregate have a number other than zero."""
        aggregate = torch.arange(len(delta), device=delta.device) // self.participants
        # How many clients of each aggregate have a number other than zero; the last one may be incomplete.
        contributors = delta.new_zeros(-(-len(delta) // self.participants), *delta.shape[1:])
        contributors.index_add_(0, aggregate, (delta != 0).to(delta))
        return (contributors >= self.threshold)[aggregate]
