"""Generalised least squares on simulated clients of similar compositions."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedleak.attacks.composition.base import CompositionAttack, by_information
from fedleak.attacks.composition.closed_form import ClosedForm
from fedleak.attacks.composition.estimates import CompositionEstimate
from fedleak.attacks.composition.least_squares import LocalLeastSquares, Simulations, left_out_errors
from fedleak.client.auxiliary_images import Auxiliary, auxiliary
from fedleak.client.last_layer import layer_change
from fedleak.client.network import ClassifierAlgorithm
from fedleak.client.simulated_clients import (
    draw_examples,
    nearby_compositions,
    random_compositions,
    simulated_changes,
)
from fedleak.core.attack import Variants
from fedleak.core.batch_norm import is_statistic
from fedleak.core.largest_remainders import largest_remainders
from fedleak.core.progress import report_progress
from fedleak.core.ranges import AtLeastTwo, NonNegativeInt, PositiveFloat, PositiveInt, UnitInterval
from fedleak.core.view import RoundView

_WIDTH = 1.96
"""Standard errors on both sides of an estimate that hold the true share in 95 % of cases."""
_ONE_SIDED = 1.645
"""Standard errors by which a share differs from 0 at a level of 5 %."""
_SETTLED = 1 / 3
"""Distance by which a settled estimate moves in a pass, in standard deviations of the nearby compositions."""
_ENOUGH = 50
"""Auxiliary images of each class from which on the earlier layers are used."""
_ENTRIES = 2**14
"""Entries of a parameter that are used; of a larger one, a random choice."""


@dataclass(frozen=True, kw_only=True)
class DecafMatch(CompositionAttack):
    """Generalised least squares on simulated clients, first of random and then of similar compositions.

    Decaf's bases assume that training is linear in the classes. The server can instead simulate the training itself, on
    auxiliary images in any proportion and with the client's example count. (1) Simulate clients of one class and of
    random compositions, shared by all victims; `LocalLeastSquares` gives an estimate. (2) For each victim, simulate
    clients near its estimate and repeat, until the estimate hardly moves. The simulations of all victims together give
    the response to a change of composition and the covariance of what else moves a change: the order of mini-batches
    and the sampling of examples. The changes of all recorded layers are used: earlier layers say less about the
    composition, but more about the order. Simulations that are left out give the standard error of each share.
    Smaller shares than that are 0. Rounds are combined by `by_information`.

    Threat model: passive server, one round; knows the clients' training algorithm and the example counts that they
    report, and has a few images of each class.

    Args:
        shared: number of simulated clients of random compositions, shared by all victims.
        local: number of simulated clients for each victim and pass.
        passes: largest number of refinement passes of a victim.
        spread: standard deviation of a nearby share of 0.1.
        layers: layers whose changes are used: ``all``, the ``last`` one, or ``auto``: all if there are at least 50
            auxiliary images of every class. With few images, simulations cannot show in which directions images that
            the adversary does not have move the earlier layers.
        least: smallest share of a class that is called present, if it also differs from 0 at a level of 5 %.
        auxiliary_per_class: number of auxiliary images used per class, None for all.

    Variants:
        shared: the first step alone, one Gauss-Newton solution on simulated clients that all victims share.

    References:
        This project; it replaces the bases of [Dai24], Algorithms 2 and 3.
        Simulated clients were used before by [Ma25].

    Example:
        >>> import torch
        >>> from fedleak.attacks.composition import DecafMatch
        >>> from fedleak.attacks.composition.toy import toy
        >>> view, truth = toy()
        >>> estimate = DecafMatch(shared=40, local=10, passes=1)(view, generator=torch.Generator().manual_seed(0))
        >>> float(estimate.score(view, truth).metrics["l1"].mean()) < 0.3
        True
    """

    name = "decaf-match"
    with_prior = "rank"
    cost = "`shared` simulated trainings and one per class, and `local` per victim and pass, of at most `passes`"
    threat_model = ClosedForm.threat_model
    variants: ClassVar[Variants] = {
        "shared": {
            "name": "decaf-shared",
            "passes": 0,
            "cost": "`shared` simulated trainings and one per class, for all victims",
        }
    }

    shared: AtLeastTwo = 60
    local: AtLeastTwo = 12
    passes: NonNegativeInt = 6
    spread: PositiveFloat = 0.042
    layers: Literal["auto", "all", "last"] = "auto"
    least: UnitInterval = 0.01
    auxiliary_per_class: PositiveInt | None = None

    def estimate(self, view: RoundView, *, generator: torch.Generator) -> CompositionEstimate:
        image_pool = auxiliary(view, layer_change(view).bias.shape[1], self.auxiliary_per_class)
        work = _Work(view, image_pool, generator, all_layers=self._uses_all_layers(image_pool))
        # Step 1: clients of random compositions and of one class each, group 0 of all victims.
        victims = torch.arange(view.victims)
        one_class = torch.eye(len(image_pool.by_class), dtype=torch.float64)
        drawn = random_compositions(self.shared, len(one_class), generator=generator)
        shared_group = torch.zeros(len(drawn) + len(one_class), dtype=torch.int64)
        sizes = view.example_counts[torch.arange(len(shared_group)) % view.victims]
        simulated = work.simulate(torch.cat([drawn, one_class]), sizes, shared_group)
        noise_of = shared_group == 0
        group = torch.zeros_like(victims)
        shares = LocalLeastSquares(simulated, noise_of, work.white).estimate(work.victim_changes, group)
        report_progress(1 / (self.passes + 1))
        # Step 2: clients near each estimate that still moves, in a group of the victim's own: its number and 1.
        moving = victims
        for passes_done in range(1, self.passes + 1):
            group = victims + 1
            near = nearby_compositions(shares[moving], self.local, spread=self.spread, generator=generator)
            sizes = view.example_counts[moving].repeat_interleave(self.local)
            near_group = group[moving].repeat_interleave(self.local)
            simulated = simulated.and_more(work.simulate(near.flatten(0, 1), sizes, near_group))
            # The covariance of the noise is that of similar compositions alone.
            noise_of = simulated.group > 0
            before = shares
            shares = LocalLeastSquares(simulated, noise_of, work.white).estimate(work.victim_changes, group)
            # An estimate has settled if it moved by less than a share of the distance of its nearby compositions.
            movement = torch.linalg.vector_norm(shares - before, dim=1)
            distance = torch.linalg.vector_norm(near - before[moving, None], dim=2).square().mean(1).sqrt()
            moving = moving[movement[moving] > _SETTLED * distance]
            report_progress((passes_done + 1) / (self.passes + 1))
            if not len(moving):
                break
        error = left_out_errors(simulated, noise_of, work.white, generator=generator)[group]
        return self._with_intervals(shares, error)

    def _with_intervals(self, shares: Tensor, error: Tensor) -> CompositionEstimate:
        """The estimate of shares with standard errors ``(V, K)``.

        Shares below their standard error are 0, and those within its one-sided limit are not called present.
        """
        is_largest = shares == shares.amax(1, keepdim=True)
        is_above_error = (shares > error.clamp(min=self.least)) | is_largest
        present = (shares > (_ONE_SIDED * error).clamp(min=self.least)) | is_largest
        shares = shares * is_above_error
        shares = shares / shares.sum(1, keepdim=True)
        # A single class has the share 1, without an interval.
        has_several = is_above_error.sum(1, keepdim=True) > 1
        half_width = _WIDTH * error * (is_above_error & has_several)
        return CompositionEstimate(
            proportions=shares,
            low=(shares - half_width).clamp(0, 1),
            high=(shares + half_width).clamp(0, 1),
            present=present,
        )

    def _uses_all_layers(self, image_pool: Auxiliary) -> bool:
        if self.layers == "auto":
            return int(image_pool.per_class.min()) >= _ENOUGH
        return self.layers == "all"

    def combine(self, estimates: Sequence[CompositionEstimate]) -> CompositionEstimate:
        return by_information(estimates)


class _Work:
    """Simulates clients of one view, and gives their changes and those of the victims on one scale.

    Changes are divided by the client's number of steps, and a parameter by the r.m.s. of its changes about their mean,
    among the first simulations; by the same number for all parameters if clients add noise, of the variance `white` on
    this scale. Simulations are clipped as clients are, but have no noise.
    """

    def __init__(self, view: RoundView, image_pool: Auxiliary, generator: torch.Generator, *, all_layers: bool) -> None:
        noiseless = tuple(dataclasses.replace(release, noise_scale=0.0) for release in view.releases)
        self.view = dataclasses.replace(view, releases=noiseless)
        self.image_pool = image_pool
        self.generator = generator
        self.noise = max((view.noise_scale(name) for name in view.deltas), default=0.0)
        last_layer = view.require(ClassifierAlgorithm).output_layer
        # Numbers of the entries of each parameter that are used.
        self.entries: dict[str, Tensor] = {}
        for name, delta in view.deltas.items():
            is_last = name.rpartition(".")[0] == last_layer
            if is_last or (all_layers and not is_statistic(name)):
                drawn = torch.randperm(delta[0].numel(), generator=generator)[:_ENTRIES]
                self.entries[name] = drawn.sort().values
        self.scales: dict[str, float] = {}
        self.white = 0.0

    def simulate(self, compositions: Tensor, sizes: Tensor, group: Tensor) -> Simulations:
        """Clients with compositions ``(B, K)`` and example counts ``(B,)``, near the groups ``(B,)``."""
        counts = largest_remainders(compositions, sizes)
        examples = draw_examples(self.image_pool, counts, generator=self.generator)
        images = (self.image_pool.images, self.image_pool.labels)
        parts = []
        for deltas in simulated_changes(self.view, images, examples, generator=self.generator):
            parts.append(self._entries(deltas))
        changes = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        if not self.scales:
            self._set_scales(changes)
        shares = counts.double() / counts.sum(1, keepdim=True)
        return Simulations(shares, self._scaled(changes, sizes), group)

    def _set_scales(self, changes: Mapping[str, Tensor]) -> None:
        """The scale of each parameter, from the changes of the first simulations."""
        tiny = torch.finfo(torch.float32).tiny
        for name, change in changes.items():
            root_mean_square = (change - change.mean(0)).square().mean().sqrt()
            self.scales[name] = max(float(root_mean_square), tiny)
        if self.noise:
            # One scale for all parameters, so that declared noise has one variance in all numbers.
            largest = max(self.scales.values())
            self.scales = dict.fromkeys(self.scales, largest)
            steps = self.view.require(ClassifierAlgorithm).steps(self.view.example_counts)
            self.white = float(((self.noise / largest / steps) ** 2).mean())

    @property
    def victim_changes(self) -> Tensor:
        """``(V, D)`` the victims' changes."""
        return self._scaled(self._entries(dict(self.view.deltas)), self.view.example_counts)

    def _entries(self, deltas: dict[str, Tensor]) -> dict[str, Tensor]:
        """``(B, d)`` the entries of each parameter that are used."""
        return {name: deltas[name].flatten(1)[:, chosen].float() for name, chosen in self.entries.items()}

    def _scaled(self, changes: dict[str, Tensor], sizes: Tensor) -> Tensor:
        """``(B, D)`` changes of all parameters in a row, per local step."""
        steps = self.view.require(ClassifierAlgorithm).steps(sizes)[:, None]
        scaled = [change / self.scales[name] for name, change in changes.items()]
        return torch.cat(scaled, dim=1) / steps
