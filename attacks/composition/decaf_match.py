"""Inversion of a client's training by regression on simulated clients."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.composition.base import (
    AUXILIARY,
    Auxiliary,
    CompositionAttack,
    auxiliary,
    by_information,
    layer_change,
)
from attacks.composition.null_classes import (
    NullRule,
    PublishedRule,
    calibrate,
    never_empty,
    published_present,
    published_rule,
    without_decay,
)
from attacks.composition.regression import Prediction, ridge
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
from protocol.threat_model import ThreatModel
from protocol.view import ServerView
from ranges import NonNegativeInt, PositiveFloat, PositiveInt

_FAR, _REACH, _LEAST = 0.3, 0.5, 1e-4
"""Weight of a shared simulation next to a local one: at the victim's own estimate, the L1 distance at which it has
fallen to 1/e, and the least."""
_WIDTH = 1.96
_LIKELY, _CERTAIN = 2.0, 3.0
"""Standard errors above zero from which a share may not be, and from which it is not, a chance."""


@dataclass(frozen=True)
class Simulations:
    """Simulated clients, their compositions and features.

    Attributes:
        compositions: ``(M, K)``.
        blocks: features, ``(M, D)`` each.
    """

    compositions: Tensor
    blocks: Blocks


@dataclass(frozen=True, kw_only=True)
class DecafMatch(CompositionAttack):
    """Ridge regression from changes to compositions, on simulated clients: first of any composition, then nearby.

    Decaf's bases take a client's training for linear in its classes. But the server can run that training itself: on
    auxiliary images in any proportion, as many as the client has. (1) Shared by all victims: clients of random
    compositions. A ridge regression from their changes to their compositions gives a first estimate. (2) For every
    victim, clients with compositions about its estimate; the same regression, in which simulations count by their
    distance, gives the next. It is the empirical linear estimator of least error around the victim: the response to a
    change of composition and the noise of order and sampling both come from the simulations. The residuals of the
    simulations left out give an interval for each share. Rounds are combined by their information.

    Threat model: passive server, one round; knows the clients' training algorithm and the number of their examples, as
    they report it, and has a few images of each class.

    Args:
        shared: simulated clients for all victims together.
        local: simulated clients for each victim in each pass.
        passes: passes of refinement.
        spread: standard deviation of a nearby share about 0.1.
        probes: auxiliary images of each class on which a changed model is tried.
        variants: copies of the auxiliary set, moved by a pixel; 1 for the set alone.
        null_classes: ``published``; ``corrected``: known decay removed and a threshold calibrated on the shared
            simulations; ``tested``: what the published rule calls null is present all the same if its share is two
            standard errors above zero in an earlier estimate and three in the last, because that rule misses rare
            classes; nearby clients hold it too where the rule misses such shares of simulated clients as the first
            estimate cannot tell from zero; ``none`` to leave the step out.
        threshold: of the published rule.
        auxiliary_per_class: use only so many auxiliary images of each class, None for all.
        rounds: see `CompositionAttack`.
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
        told = _regress(far, own, scales)
        allowed = present | self._significant(told, _LIKELY)
        tried = allowed | self._doubtful(far, told)
        centre = _as_shares(told.value, allowed)
        near: list[Simulations] = []
        for done in range(1, self.passes + 1):
            near.append(work.around(centre, tried, self.local, self.spread))
            told = _regress_nearby(far, near, own, scales, centre)
            tried = allowed = present | (tried & self._significant(told, _LIKELY))
            centre = _as_shares(told.value, allowed)
            advance((done + 1) / (self.passes + 1))
        present = present | (allowed & self._significant(told, _CERTAIN))
        centre = _as_shares(told.value, present)
        half = _WIDTH * told.error * (present & (present.sum(1, keepdim=True) > 1))
        return CompositionEstimate(
            proportions=centre, low=(centre - half).clamp(0, 1), high=(centre + half).clamp(0, 1), present=present
        )

    def combine(self, estimates: Sequence[CompositionEstimate]) -> CompositionEstimate:
        """Rounds weighted by their information."""
        return by_information(estimates)

    def _significant(self, told: Prediction, errors: float) -> Tensor:
        if self.null_classes != "tested":
            return torch.zeros(told.value.shape, dtype=torch.bool)
        return told.value > errors * told.error

    def _doubtful(self, far: Simulations, told: Prediction) -> Tensor:
        """``(V, K)`` where the published rule misses larger simulated shares than the first estimate errs by."""
        if self.null_classes != "tested":
            return torch.zeros(told.value.shape, dtype=torch.bool)
        changes = far.blocks["weight"].reshape(*far.compositions.shape, -1)
        missed = far.compositions * ~published_rule(changes, self.threshold)
        return missed.amax() > told.error

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
        """Clients of given compositions ``(B, K)`` and numbers of examples ``(B,)``."""
        counts = whole_counts(compositions, sizes)
        examples = draw_examples(self.known, counts, self.variants, generator=self.generator)
        parts = [
            change_features(self.view, deltas, self.probes)
            for deltas in simulated_changes(self.view, self.pool, examples, generator=self.generator)
        ]
        blocks = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        return Simulations(counts.double() / counts.sum(1, keepdim=True), blocks)

    def around(self, centre: Tensor, present: Tensor, count: int, spread: float) -> Simulations:
        """`count` clients about every victim's estimate, victim after victim."""
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
    """One regression for each victim, on the shared simulations and its own of every pass."""
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
    """Shares of the present classes, at least 0, that sum to one."""
    clipped = values.clamp(min=0) * present
    total = clipped.sum(1, keepdim=True)
    equal = present.double() / present.sum(1, keepdim=True)
    return torch.where(total > 0, clipped / total.where(total > 0, 1), equal)
