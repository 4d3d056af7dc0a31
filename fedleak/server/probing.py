"""Probing: after honest rounds the server calls the same clients repeatedly with item vectors of its choice.

References:
    [London20], Protocol 2 and Theorems 1 to 3.
"""

import dataclasses
import itertools
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from fedleak.client.margin_losses import check_assumption_2
from fedleak.core.errors import require
from fedleak.core.ranges import OpenUnitInterval, PositiveFloat, PositiveInt, UnitInterval
from fedleak.defenses.refusal import RefuseProbes
from fedleak.server.deviation import Deviation, Notice
from fedleak.server.probe_answers import Answering
from fedleak.server.probing_bounds import Noisy, theorem_1, theorem_2, theorem_3, tolerance

SMALL = 0.01
"""Standard deviation of small random items; trained items have a norm of about 3."""


@dataclass(frozen=True, kw_only=True)
class Probing(Deviation):
    """Behaviour of the server after its honest rounds; each further round is one point of a campaign.

    A round calls each client a number of times. Its recorded messages are sums of all answers since the start of the
    campaign, and the global model does not change. Every campaign starts from the private vectors after the last honest
    round, and its changes to them are not kept.

    Args:
        after: number of honest rounds.
        probe: item vectors that the server sends: ``zeros`` (Protocol 2); ``low-rank``, one random vector for all
            items; ``small`` random vectors; or ``shuffled``, the honest vectors under wrong item numbers.
        interactions: points of a campaign as numbers of calls T, ascending.
        of_bound: points of a second campaign as multiples of the theorem's T for each client, ascending.
        theorem: 1 for Protocol 1 without noise, 2 for Protocol 1, 3 for Protocol 3.
        tolerance: error epsilon that counts as success.
        delta: failure probability of the theorem.
        campaigns: number of repetitions.
    """

    name = "probe"
    part = "sends"
    does = "calls the same clients many times with item vectors of its choice, and sums their answers"
    noticed = (
        Notice("client", "an item table with zeros, of low rank, shrunk, or unlike the last one", (RefuseProbes,)),
        Notice("auditor", "rounds in which the global model does not change"),
    )
    references = ("London20, Protocol 2",)

    after: PositiveInt = 200
    probe: Literal["zeros", "low-rank", "small", "shuffled"] = "zeros"
    interactions: list[PositiveInt] = dataclasses.field(default_factory=list)
    of_bound: list[PositiveFloat] = dataclasses.field(default_factory=list)
    theorem: Literal[1, 2, 3] = 2
    tolerance: UnitInterval = 0.0
    delta: OpenUnitInterval = 0.05
    campaigns: PositiveInt = 1

    def __post_init__(self) -> None:
        """Checks the points.

        Raises:
            InputError: there is no point, points do not ascend, or `of_bound` has another probe than zeros.
        """
        super().__post_init__()
        for name, points in self.axes.items():
            ascending = all(before < now for before, now in itertools.pairwise([0, *points]))
            require(ascending, f"probing.{name} above 0 and ascending", points, "Sort them.")
        require(
            self.axes, "points in probing.interactions or probing.of_bound", "none", "Name a number of interactions."
        )
        require(
            self.probe == "zeros" or not self.of_bound,
            "the probe zeros with probing.of_bound, because the theorems hold for it",
            self.probe,
            "Set probing.probe to zeros, or name the points in probing.interactions.",
        )

    @property
    def rounds(self) -> int:
        """Number of rounds of the whole training."""
        return self.after + self.campaigns * sum(map(len, self.axes.values()))

    @property
    def axes(self) -> dict[str, list[Any]]:
        """Points of each campaign by the name of their axis."""
        axes: dict[str, list[Any]] = {}
        if self.interactions:
            axes["interactions"] = list(self.interactions)
        if self.of_bound:
            axes["of_bound"] = list(self.of_bound)
        return axes

    def point(self, round_number: int) -> tuple[int, str, int]:
        """Campaign, axis and position on the axis of a round."""
        # A campaign goes through the points of all axes, one round each.
        points = []
        for axis, points_of_axis in self.axes.items():
            for position in range(len(points_of_axis)):
                points.append((axis, position))
        campaign, step = divmod(round_number - self.after, len(points))
        axis, position = points[step]
        return campaign, axis, position

    def settings(self) -> dict[int, dict[str, Any]]:
        """Setting columns of each probing round: its point, and the error that counts as success."""
        columns: dict[int, dict[str, Any]] = {}
        for number in range(self.after, self.rounds):
            _, axis, position = self.point(number)
            columns[number] = {axis: _plain(self.axes[axis][position]), "tolerance": _plain(self.tolerance)}
        return columns

    def sent(self, table: Tensor, generator: torch.Generator) -> Tensor:
        """``(I, d)`` item vectors that the server sends instead of the honest `table`."""
        if self.probe == "zeros":
            return torch.zeros_like(table)
        if self.probe == "shuffled":
            return table[torch.randperm(len(table), generator=generator)]
        rows = 1 if self.probe == "low-rank" else len(table)
        vectors = SMALL * torch.randn(rows, table.shape[1], generator=generator, dtype=table.dtype)
        return vectors.expand_as(table)

    def bounds(self, how: Answering, table: Tensor, users: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        """``(V,)`` float64 number of interactions that the theorem requires for each client.

        The honest item vectors are ``table (I, d)``, the private ones ``users (V, d)``; ``labels (V, N)`` are 1 for
        liked, 0 for not liked or padded, and ``counts (V,)`` their numbers.
        """
        rates = labels.double().sum(1) / counts
        table = table.double()
        if self.theorem == 1:
            return theorem_1(rates, batch=how.batch, delta=self.delta)
        noise = Noisy(
            scale=how.noise,
            step=how.learning_rate * check_assumption_2(how.loss),
            items=len(table),
            largest=float(table.norm(dim=1).max()),
        )
        tau = tolerance(users.double() @ table.T, self.tolerance)
        if self.theorem == 2:
            return theorem_2(rates, tau, noise, batch=how.batch, delta=self.delta)
        return theorem_3(rates, tau, counts, noise, delta=self.delta)

    def check(self, how: Answering) -> None:
        """Checks that the theorem applies to the clients.

        Raises:
            InputError: the loss violates Assumption 2, there is noise with Theorem 1, or the protocol does not match.
        """
        check_assumption_2(how.loss)
        protocol = "epochs" if self.theorem == 3 else "batches"
        require(
            how.protocol == protocol and not (self.theorem == 1 and how.noise),
            "theorem 1 without noise, 2 with local.updates, or 3 with local.epochs",
            f"theorem {self.theorem}, {how.protocol}, noise {how.noise:g}",
            "Fix probing.theorem, or how clients train.",
        )
        can_answer = how.protocol != "epochs" or self.probe == "zeros"
        require(can_answer, "the probe zeros with local.epochs", self.probe, "Set probing.probe to zeros.")


def _plain(number: float) -> int | float:
    return int(number) if number == int(number) else number
