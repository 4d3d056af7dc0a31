"""Membership and source by a joint fit of every update by all candidates."""

import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from attacks.membership.estimates import RecordMembershipEstimate
from attacks.membership.joint_fit import Basis, Fit, fit, predicted_auc
from attacks.membership.pool import KNOWS, NEEDS, Pool, PoolAttack, flat_updates
from protocol.errors import ViewError
from protocol.ranges import PositiveInt
from protocol.threat_model import ThreatModel
from protocol.view import ServerView

_QUADRATURE = ((0.1127, 5 / 18), (0.5, 8 / 18), (0.8873, 5 / 18))
"""Places on the way from the sent model to the client's own, and their weights: the rule of Gauss and Legendre."""
Precision = Literal["float32", "float64"]
_SIMULATED = 4
"""Simulated clients that estimate by how much clients clip."""


@dataclass(frozen=True)
class CandidateFit(PoolAttack):
    """Joint least squares of an update over all candidates: the part of it that only one candidate explains.

    A record's effect on the update is minus the sum of step sizes over the number of examples, times its mean gradient
    on the way from the sent model to the client's own, by three places on the line between them. All effects together
    are fitted to the update as a mixed model (`attacks.membership.joint_fit`): the weights of a client's records are 1,
    those of others 0; records that are no candidates and the path of the training are noise. The score is the posterior
    log odds of weight 1, summed over rounds. Published attacks compare one candidate with the update, so all records of
    a client's classes resemble it.

    For one step of SGD the effect is exact, and the weights solve linear equations. Declared noise bounds the variance
    from below; effects are then taken at the sent model, because the client's own is noisy, and scaled by the clip of
    simulated clients. `predicted-auc` is what follows from the model of the noise.

    Threat model: passive server that sees each client's update.

    Attributes:
        rounds: largest number of rounds that are fitted, evenly spaced from the first to the last; None for all.
        sketch: largest number of numbers of an update: of more, random sums with random signs (a count sketch).
        precision: of the inner products of effects. In float32, which takes half the time, directions with less than
            1e-6 of the largest variance are lost: too many where all records have nearly the same gradient. One step
            without noise is always computed in float64.

    Raises:
        ViewError: the clients' optimizer scales gradients, or clips examples.

    References:
        This project; Charikar, Chen and Farach-Colton, "Finding frequent items in data streams", ICALP 2002, for the
        sketch.
    """

    name: ClassVar[str] = "candidate-fit"
    cost: ClassVar[str] = "seconds per client and round"
    threat_model: ClassVar[ThreatModel] = ThreatModel(sees="each client's update", knows=KNOWS, needs=NEEDS)

    rounds: PositiveInt | None = None
    sketch: PositiveInt = 32768
    precision: Precision = "float32"

    def run(self, view: ServerView, *, generator: torch.Generator) -> RecordMembershipEstimate:
        found = summed_fits(view, rounds=self.rounds, sketch=self.sketch, precision=self.precision, generator=generator)
        return RecordMembershipEstimate(
            senders=torch.tensor(list(found)),
            scores=torch.stack([one.log_odds for one in found.values()]),
            predicted=torch.tensor([predicted_auc(one.shift, one.share) for one in found.values()]),
            duplicates=Pool.of(view).duplicates(),
        )


def summed_fits(
    view: ServerView, *, rounds: int | None, sketch: int, precision: Precision, generator: torch.Generator
) -> dict[int, Fit]:
    """Fit of every client's updates, by pseudonym; those of the last view are kept for another attack.

    The scores of several rounds are weighted by their shifts, so that the evidence of the sum is the sum of the
    evidence; shares are averaged.
    """
    if (kept := _LAST.get("view")) is not None and kept[0]() is view and kept[1] == (rounds, sketch, precision):
        return kept[2]
    pool, parts = Pool.of(view), dict[int, list[Fit]]()
    for part in _evenly(view, rounds):
        for pseudonym, one in zip(
            part.pseudonyms.tolist(), _fits(part, pool, sketch, precision, generator), strict=True
        ):
            parts.setdefault(pseudonym, []).append(one)
    found = {pseudonym: _summed(fits) for pseudonym, fits in parts.items()}
    _LAST["view"] = weakref.ref(view), (rounds, sketch, precision), found
    return found


_LAST: dict[str, tuple["weakref.ref[ServerView]", tuple[int | None, int, Precision], dict[int, Fit]]] = {}


def _evenly(view: ServerView, count: int | None) -> Iterator[ServerView]:
    """At most `count` rounds of a view, evenly spaced from the first to the last, one in memory at a time."""
    numbers = sorted(view.by_round)
    if not numbers or count is None:
        yield from view.each_round()
        return
    for place in torch.linspace(0, len(numbers) - 1, min(count, len(numbers))).round().long().tolist():
        yield view.by_round[numbers[place]]


def _summed(fits: list[Fit]) -> Fit:
    shifts, scores = (torch.stack([getattr(one, name) for one in fits]) for name in ("shift", "score"))
    shift = shifts.square().sum(0).sqrt()
    score = (shifts * scores).sum(0) / shift.where(shift > 0, 1)
    return Fit(
        score,
        shift,
        torch.stack([one.share for one in fits]).mean(0),
        *(getattr(fits[-1], name) for name in ("spread", "noise", "class_spread")),
    )


def _fits(view: ServerView, pool: Pool, size: int, least: Precision, generator: torch.Generator) -> list[Fit]:
    """Fits of one round's updates."""
    sums = pool.learner.step_sums(view.example_counts)
    if sums is None:
        raise ViewError("expected clients that train by SGD, whose update is a sum of gradients")
    updates, names = flat_updates(view, pool.learner)
    noise = max(view.noise_scale(name) for name in names)
    single = bool((pool.learner.steps(view.example_counts) == 1).all())
    at_sent_model = single or noise > 0
    sketch = _Sketch(updates.shape[1], size, generator)
    scales = -(sums / view.example_counts.clamp(min=1))[:, None] * _clip_factors(view, pool, generator)
    shared = _effects(pool, view.model, names, sketch) if at_sent_model else None
    exact = least == "float64" or (single and not noise)
    precision = torch.float64 if exact else torch.float32
    common = None if shared is None else Basis.of(_gram(shared, precision))
    found = []
    for place in range(view.victims):
        effects, basis = shared, common
        if effects is None or basis is None:
            effects = torch.zeros(())
            for way, weight in _QUADRATURE:
                between = {n: v + way * view.deltas[n][place] if n in names else v for n, v in view.model.items()}
                effects = effects + weight * _effects(pool, between, names, sketch)
            basis = Basis.of(_gram(effects, precision))
        scale, count = float(scales[place]), int(view.example_counts[place])
        own = Basis(basis.values * scale**2, basis.vectors)
        products = scale * (effects @ sketch.of(updates[place : place + 1])[0]).double()
        found.append(fit(own, products, pool.labels, records=count, noise=noise * sketch.factor))
    return found


def _clip_factors(view: ServerView, pool: Pool, generator: torch.Generator) -> Tensor:
    """``(V, 1)`` factor by which clients clip, from simulated clients with random candidates; 1 without a clip."""
    factors = torch.ones(view.victims, 1, dtype=torch.float64)
    clipped = [name for release in view.releases if release.clip is not None for name in release.parameters]
    clipped = [name for name in clipped if name in view.model]
    if not clipped:
        return factors
    for count in torch.unique(view.example_counts).tolist():
        examples = torch.randint(len(pool), (_SIMULATED, count), generator=generator)
        deltas = pool.learner.simulate_examples(view.model, pool.records, pool.labels, examples, generator=generator)
        factors[view.example_counts == count] = float(view.clip_factors(clipped[0], deltas).double().mean())
    return factors


def _effects(pool: Pool, model: Mapping[str, Tensor], names: tuple[str, ...], sketch: "_Sketch") -> Tensor:
    """``(M, D)`` gradients of all candidates, sketched."""
    return torch.cat([sketch.of(gradients) for _, gradients in pool.gradients(model, names)])


def _gram(effects: Tensor, precision: torch.dtype) -> Tensor:
    """``(M, M)`` inner products of effects ``(M, D)``, by chunks of numbers in the given precision."""
    total = torch.zeros(len(effects), len(effects), dtype=precision)
    for part in torch.split(effects, 4096, dim=1):
        own = part.to(precision)
        total.addmm_(own, own.T)
    return total


class _Sketch:
    """Random sums, each number with a random sign in one of them; the identity if there are few enough numbers.

    Attributes:
        factor: factor of the standard deviation of independent noise.
    """

    def __init__(self, numbers: int, size: int, generator: torch.Generator) -> None:
        self.size = size
        self.factor, self._place = 1.0, None
        if numbers > size:
            self._place = torch.randperm(numbers, generator=generator) % size
            self._sign = torch.randint(2, (numbers,), generator=generator).float() * 2 - 1
            self.factor = (numbers / size) ** 0.5

    def of(self, values: Tensor) -> Tensor:
        """``(B, D)`` -> ``(B, size)``."""
        if self._place is None:
            return values
        return values.new_zeros(len(values), self.size).index_add_(1, self._place, values * self._sign)
