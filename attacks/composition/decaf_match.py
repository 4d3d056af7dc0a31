"""Regression on simulated clients: class compositions from changes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.composition.base import AUXILIARY, Auxiliary, CompositionAttack, auxiliary, by_information, layer_change
from attacks.composition.null_classes import (
    NullRule,
    PublishedRule,
    calibrate,
    never_empty,
    published_present,
    published_rule,
    without_decay,
)
from attacks.composition.simulation import (
    Blocks,
    Probes,
    augmented,
    block_scales,
    change_features,
    draw_examples,
    joined,
    make_probes,
    nearby_compositions,
    random_compositions,
    simulated_changes,
    whole_counts,
)
from attacks.estimates import CompositionEstimate
from protocol.progress import advance
from protocol.ranges import NonNegativeInt, PositiveFloat, PositiveInt
from protocol.threat_model import ThreatModel
from protocol.view import ServerView

_FAR, _REACH, _LEAST = 0.3, 0.5, 1e-4
"""Weight of a shared simulation relative to a local one: at the victim's estimate, the L1 distance at which it has
decayed to 1/e, and the minimum.
"""
_WIDTH = 1.96
STRENGTHS = tuple(10.0**power for power in (-3.0, -2.5, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0))
_INTERCEPT = 10.0
"""Scale of the constant feature relative to the others; large, so that it is hardly regularised."""
_LIKELY, _CERTAIN = 2.0, 3.0
"""Standard errors above zero at which a share is likely, and at which it is certain, not to be zero."""


@dataclass(frozen=True)
class Simulations:
    """Simulated clients: their ``compositions (M, K)`` and feature ``blocks``, ``(M, D)`` each."""

    compositions: Tensor
    blocks: Blocks


@dataclass(frozen=True)
class Prediction:
    """Prediction ``value (V, K)`` for one query per victim, and r.m.s. leave-one-out ``error (V, K)``."""

    value: Tensor
    error: Tensor


@dataclass(frozen=True, kw_only=True)
class DecafMatch(CompositionAttack):
    """Ridge regression from changes to compositions, on simulated clients of random and then of similar compositions.

    Decaf's bases assume that training is linear in the classes. The server can instead simulate the training itself, on
    auxiliary images in any proportion and with the client's example count. (1) Simulate clients of random compositions,
    shared by all victims; a ridge regression from their changes to their compositions gives a first estimate. (2) For
    each victim, simulate clients near its estimate and repeat the regression with weights that decay with the distance.
    This is the empirical linear minimum-error estimator near the victim: the simulations provide the response to a
    change of composition and the noise of mini-batch order and sampling. Leave-one-out residuals give an interval for
    each share. Rounds are combined by `by_information`.

    Threat model: passive server, one round; knows the clients' training algorithm and the example counts that they
    report, and has a few images of each class.

    Args:
        shared: number of simulated clients, shared by all victims.
        local: number of simulated clients for each victim and pass.
        passes: number of refinement passes.
        spread: standard deviation of a nearby share of 0.1.
        probes: auxiliary images of each class on which changed models are evaluated.
        variants: number of copies of the auxiliary set, shifted by a pixel; 1 for the set alone.
        null_classes: ``published``; ``corrected``: weight decay is subtracted and a threshold calibrated on the shared
            simulations; ``tested``: the published rule misses rare classes, so a class that it calls null is present if
            its share is two standard errors above zero in an earlier estimate and three in the last one (nearby clients
            hold it too if the rule misses shares of simulated clients that the first estimate cannot distinguish from
            zero); ``none`` to skip this step.
        threshold: see `published_rule`.
        auxiliary_per_class: number of auxiliary images used per class, None for all.
        rounds: see `CompositionAttack`.

    References:
        This project; it replaces the bases of Dai, Zhou and Fu, "Decaf", 2024, arXiv:2405.15316, Algorithms 2 and 3.
    """

    name = "decaf-match"
    cost = "`shared` simulated trainings, and `local` per victim and pass"
    threat_model = ThreatModel(
        sees="the update, the global model and how many examples the client reports",
        knows="the clients' training algorithm and labelled images of every class that no client has",
        needs=("learner:ClassifierSimulator", "deltas", *AUXILIARY),
    )

    shared: PositiveInt = 40
    local: PositiveInt = 12
    passes: NonNegativeInt = 2
    spread: PositiveFloat = 0.042
    probes: PositiveInt = 20
    variants: PositiveInt = 4
    null_classes: NullRule = "tested"
    threshold: float = 0.0
    auxiliary_per_class: PositiveInt | None = None

    def estimate(self, view: ServerView, *, generator: torch.Generator) -> CompositionEstimate:
        known = auxiliary(view, layer_change(view).bias.shape[1], self.auxiliary_per_class)
        work = _Work(self, view, known, generator)
        sizes = view.example_counts[torch.arange(self.shared) % view.victims]
        compositions = random_compositions(self.shared, len(known.by_class), generator=generator)
        far = work.simulate(compositions, sizes)
        advance(1 / (self.passes + 1))
        present = self._present(view, far, sizes)
        own = change_features(view, dict(view.deltas), work.probes)
        scales = block_scales(far.blocks)
        found = _regress(far, own, scales)
        allowed = present | self._significant(found, _LIKELY)
        tried = allowed | self._doubtful(far, found)
        centre = _as_shares(found.value, allowed)
        near: list[Simulations] = []
        for done in range(1, self.passes + 1):
            near.append(work.around(centre, tried, self.local, self.spread))
            found = _regress_nearby(far, near, own, scales, centre)
            tried = allowed = present | (tried & self._significant(found, _LIKELY))
            centre = _as_shares(found.value, allowed)
            advance((done + 1) / (self.passes + 1))
        present = present | (allowed & self._significant(found, _CERTAIN))
        centre = _as_shares(found.value, present)
        half = _WIDTH * found.error * (present & (present.sum(1, keepdim=True) > 1))
        return CompositionEstimate(
            proportions=centre, low=(centre - half).clamp(0, 1), high=(centre + half).clamp(0, 1), present=present
        )

    def combine(self, estimates: Sequence[CompositionEstimate]) -> CompositionEstimate:
        return by_information(estimates)

    def _significant(self, found: Prediction, errors: float) -> Tensor:
        if self.null_classes != "tested":
            return torch.zeros(found.value.shape, dtype=torch.bool)
        return found.value > errors * found.error

    def _doubtful(self, far: Simulations, found: Prediction) -> Tensor:
        """``(V, K)`` True where the published rule misses simulated shares larger than the first estimate's error."""
        if self.null_classes != "tested":
            return torch.zeros(found.value.shape, dtype=torch.bool)
        changes = far.blocks["weight"].reshape(*far.compositions.shape, -1)
        missed = far.compositions * ~published_rule(changes, self.threshold)
        return missed.amax() > found.error

    def _present(self, view: ServerView, far: Simulations, sizes: Tensor) -> Tensor:
        if self.null_classes != "corrected":
            rule: PublishedRule = "none" if self.null_classes == "none" else "published"
            return published_present(view, rule, self.threshold)
        classes = far.compositions.shape[1]
        simulated = without_decay(view, far.blocks["weight"].reshape(self.shared, classes, -1), sizes)
        weight = without_decay(view, layer_change(view).weight)
        return never_empty(calibrate(simulated, far.compositions > 0)(weight), weight)


class _Work:
    """Simulates clients of one view."""

    def __init__(self, attack: DecafMatch, view: ServerView, known: Auxiliary, generator: torch.Generator) -> None:
        self.view = view
        self.known = known
        self.generator = generator
        self.variants = attack.variants
        images = augmented(known.images, attack.variants, generator=generator)
        self.pool = images, known.labels.repeat(attack.variants)
        self.probes: Probes = make_probes(view, known, attack.probes)

    def simulate(self, compositions: Tensor, sizes: Tensor) -> Simulations:
        """Clients with compositions ``(B, K)`` and example counts ``(B,)``."""
        counts = whole_counts(compositions, sizes)
        examples = draw_examples(self.known, counts, self.variants, generator=self.generator)
        parts = [
            change_features(self.view, deltas, self.probes)
            for deltas in simulated_changes(self.view, self.pool, examples, generator=self.generator)
        ]
        blocks = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        return Simulations(counts.double() / counts.sum(1, keepdim=True), blocks)

    def around(self, centre: Tensor, present: Tensor, count: int, spread: float) -> Simulations:
        """`count` clients near each victim's estimate, victim after victim."""
        shares = nearby_compositions(centre, present, count, spread=spread, generator=self.generator)
        return self.simulate(shares.flatten(0, 1), self.view.example_counts.repeat_interleave(count))


def _regress(far: Simulations, own: Blocks, scales: dict[str, float]) -> Prediction:
    """One regression for all victims."""
    examples, queries = joined(far.blocks, scales), joined(own, scales)
    victims = len(queries)
    gram = (examples @ examples.T).expand(victims, -1, -1)
    weights = torch.ones(victims, len(examples), dtype=torch.float64)
    return ridge(gram, far.compositions.expand(victims, -1, -1), weights, queries @ examples.T)


def _regress_nearby(
    far: Simulations, near: Sequence[Simulations], own: Blocks, scales: dict[str, float], centre: Tensor
) -> Prediction:
    """One regression for each victim, on the shared simulations and on the victim's own."""
    victims, classes = centre.shape
    distance = (far.compositions[None] - centre[:, None]).abs().sum(2)
    shared = joined(far.blocks, scales)
    mine = torch.cat([joined(part.blocks, scales).reshape(victims, -1, shared.shape[1]) for part in near], dim=1)
    targets = torch.cat([part.compositions.reshape(victims, -1, classes) for part in near], dim=1)
    examples = torch.cat([shared.expand(victims, -1, -1), mine], dim=1)
    weights = torch.cat(
        [_FAR * torch.exp(-((distance / _REACH) ** 2)) + _LEAST, torch.ones(mine.shape[:2], dtype=torch.float64)], dim=1
    )
    targets = torch.cat([far.compositions.expand(victims, -1, classes), targets], dim=1)
    query = (examples @ joined(own, scales)[..., None]).squeeze(2)
    return ridge(examples @ examples.transpose(1, 2), targets, weights, query)


def _as_shares(values: Tensor, present: Tensor) -> Tensor:
    """Non-negative shares of the present classes that sum to one."""
    clipped = values.clamp(min=0) * present
    total = clipped.sum(1, keepdim=True)
    equal = present.double() / present.sum(1, keepdim=True)
    return torch.where(total > 0, clipped / total.where(total > 0, 1), equal)


def ridge(gram: Tensor, targets: Tensor, weights: Tensor, query: Tensor) -> Prediction:
    """Kernel ridge regression of targets on features given by their inner products.

    With ``K`` the centred Gram matrix of the examples, each scaled by the root s of its weight, and ``t`` the mean of
    its diagonal, the leave-one-out residual of example m is ``[A^-1 B]_m / [A^-1]_mm``, ``A = K + lam t I + 10 t s
    s^T``. The last term is the constant feature. Without it the residuals would be too small, because the centre
    depends on the left-out example, and too little regularisation would be selected.

    Args:
        gram: ``(V, M, M)`` inner products of the examples.
        targets: ``(V, M, K)``.
        weights: ``(V, M)``, at least 0.
        query: ``(V, M)`` inner products of the query with the examples.
    """
    share = weights / weights.sum(1, keepdim=True)
    mean_row = (share[:, None] @ gram).squeeze(1)
    mean_all = (mean_row * share).sum(1)[:, None]
    centred = gram - mean_row[:, :, None] - mean_row[:, None] + mean_all[..., None]
    towards = query - mean_row - (share * query).sum(1, keepdim=True) + mean_all
    centre = share[:, None] @ targets
    root = weights.sqrt()
    scaled = centred * root[:, :, None] * root[:, None]
    right = (targets - centre) * root[..., None]
    unit = scaled.diagonal(dim1=1, dim2=2).mean(1).clamp(min=1e-300)
    constant = _INTERCEPT * unit[:, None, None] * root[:, :, None] * root[:, None]
    residuals = [_left_out(scaled + constant, strength * unit, right) for strength in STRENGTHS]
    losses = torch.stack([r.square().sum((1, 2)) for r in residuals])
    best = losses.argmin(0)
    strength = torch.tensor(STRENGTHS, dtype=gram.dtype)[best] * unit
    identity = torch.eye(gram.shape[1], dtype=gram.dtype)
    factors = torch.linalg.solve(scaled + strength[:, None, None] * identity, right)
    value = centre + (towards * root)[:, None] @ factors
    chosen = torch.stack(residuals)[best, torch.arange(len(best))]
    error = (chosen.square().sum(1) / weights.sum(1, keepdim=True)).sqrt()
    return Prediction(value.squeeze(1), error)


def _left_out(matrix: Tensor, shrinkage: Tensor, right: Tensor) -> Tensor:
    identity = torch.eye(matrix.shape[1], dtype=matrix.dtype)
    inverse = torch.linalg.inv(matrix + shrinkage[:, None, None] * identity)
    residuals: Tensor = (inverse @ right) / inverse.diagonal(dim1=1, dim2=2)[..., None]
    return residuals
