"""Fit of one client's update: its effects on a line or a simulated path from the sent model to the client's own."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.record_membership.batch_order import whitened
from fedleak.attacks.record_membership.effects import Effects, WeightedModels
from fedleak.attacks.record_membership.joint_fit import Basis, fit, seen_part, without_common_noise
from fedleak.attacks.record_membership.update_fit import Fit
from fedleak.client.record_losses import weighted_gradient

_QUADRATURE = ((0.1127, 5 / 18), (0.5, 8 / 18), (0.8873, 5 / 18))
"""Places on the way from the sent model to the client's own, and their weights: the rule of Gauss and Legendre."""
_MOST_STEPS = 32
"""Largest number of steps of a simulated path."""
MOST_PLACES = 5
"""Places on a path of several steps at which gradients are taken: five times the gradients of all candidates."""
_ASKED = 100
"""Candidates of which the fit is asked how much of their own effect it sees."""


@dataclass(frozen=True)
class ClientUpdate:
    """One client's update and what its fit needs.

    Attributes:
        effects: effects of the candidates.
        sent: model that the client received.
        delta: its update, by parameter.
        round_updates: ``(V, D)`` sketched updates of all clients of the round, without weight decay.
        row: which of these is this client's.
        records: number of the client's records.
        rate: sum of the client's step sizes over the number of its records.
        noise: declared standard deviation on each sketched number.
        shared_line: places for all clients of the round, in the place of the way to this client's own model.
    """

    effects: Effects
    sent: Mapping[str, Tensor]
    delta: Mapping[str, Tensor]
    round_updates: Tensor
    row: int
    records: int
    rate: float
    noise: float
    shared_line: "SharedLine | None" = None

    def fit_best(self, common: tuple[Tensor, Basis] | None, refinements: int, steps: int, one_pass: bool) -> Fit:
        """Fit by products and a basis of all clients, on the line of one pass, or on the best of several paths."""
        if common is not None:
            products, basis = common
            return self.fit(products[:, self.row], basis)
        if one_pass:
            return self.fit_one_pass()
        fits = [self.fit_along(self.line())]
        for _ in range(refinements):
            # The weights of the last fit simulate the path of the next one.
            fits.append(self.fit_along(self.simulated(fits[-1].mean, steps)))
        return max(fits, key=lambda candidate_fit: candidate_fit.spanned)

    def fit(self, products: Tensor, basis: Basis) -> Fit:
        """Fit by products ``(M,)`` of the mean gradients with the update, and the gradients' basis.

        The effect of a record is minus `rate` times its gradient, so products change by that factor and the eigenvalues
        of the Gram matrix by its square.
        """
        effects_basis = Basis(basis.values * self.rate**2, basis.vectors)
        effects_products = -self.rate * products.double()
        labels = self.effects.pool.labels
        update_fit = fit(effects_basis, effects_products, labels, records=self.records, noise=self.noise)
        # Most of an update may be noise that is declared: its size then says nothing of what candidates span.
        if self.noise:
            return update_fit
        return self.with_energy(update_fit)

    def fit_along(self, models: WeightedModels) -> Fit:
        products, basis = self.effects.along(models, self.round_updates[self.row, None])
        return self.fit(products[:, 0], basis)

    def fit_one_pass(self) -> Fit:
        """Fit on the line to the client's own model, in the metric of the noise of the order of the mini-batches."""
        effects = self.effects
        line = self.shared_line or SharedLine.along(self.line(), effects, self.round_updates)
        weights, gram, products = line.weights, line.gram, line.products
        deviations = list(line.deviations)
        # Deviations from the weighted mean add up to zero with these weights, which gives those at the last model.
        weighted_sum = torch.zeros(())
        for deviation, weight in zip(deviations, weights, strict=False):
            weighted_sum = weighted_sum + weight * deviation
        deviations.append(-weighted_sum / weights[-1])
        # Effects of some candidates pass for updates, to ask how much of them the fit sees.
        probed = torch.arange(0, len(gram), -(-len(gram) // _ASKED))
        updates_and_probes = torch.cat([products.to(gram), gram[:, probed]], dim=1)
        white_gram, white_products, spanned = whitened(
            gram, updates_and_probes, list(zip(deviations, weights, strict=True)), self.records
        )
        # From gradients to effects, as in `fit`; of the probes, both sides of the product are effects.
        white_basis = Basis.of(white_gram)
        basis = Basis(white_basis.values * self.rate**2, white_basis.vectors)
        clients = len(self.round_updates)
        update_products = -self.rate * white_products[:, :clients]
        probe_products = self.rate**2 * white_products[:, clients:]
        # The variances of a first fit say what noise the clients share; the second fit is without it.
        labels = effects.pool.labels
        first = fit(basis, update_products[:, self.row], labels, records=self.records)
        without_common = without_common_noise(basis, update_products, labels, first, self.row)
        second = fit(basis, without_common, labels, records=self.records)
        return dataclasses.replace(
            self.with_energy(second),
            spanned=float(spanned[self.row]),
            in_batches=True,
            seen_part=seen_part(basis, second, probed, probe_products),
        )

    def with_energy(self, update_fit: Fit) -> Fit:
        """The fit with the size of the update, by which `Fit.refuted` judges how much of it the candidates span."""
        update = self.round_updates[self.row]
        energy = float(update.double().square().sum())
        return dataclasses.replace(update_fit, energy=energy, numbers=len(update))

    def line(self) -> WeightedModels:
        """Places on the line to the client's own model, and their weights."""
        return line_of(self.effects, self.sent, self.delta)

    def simulated(self, weights: Tensor, steps: int) -> WeightedModels:
        """Places on the path of gradient descent on the candidates with some weights, turned to the client's model.

        The weights are shifted, so that they add to the number of records: the update shows their sum badly.
        """
        pool = self.effects.pool
        count = min(steps, _MOST_STEPS)
        shifted = weights + (self.records - weights.sum()) / len(weights)
        record_weights = (shifted * pool.sizes).to(self.round_updates.dtype)
        path = [dict(self.sent)]
        for _ in range(count):
            model = dict(path[-1])
            gradient = weighted_gradient(pool.learner, model, pool.records, pool.labels, record_weights)
            for name in self.delta:
                model[name] = path[-1][name] - self.rate / count * gradient[name]
            path.append(model)
        # What the path misses the client's own model by is added in equal parts to all steps.
        missing = {}
        for name, change in self.delta.items():
            missing[name] = self.sent[name] + change - path[-1][name]
        places = min(count, MOST_PLACES)
        models: WeightedModels = []
        for number in range(places):
            # The step in the middle of its part of the path.
            step = round((number + 0.5) * count / places - 0.5)
            turned = dict(path[step])
            for name, gap in missing.items():
                turned[name] = path[step][name] + step / count * gap
            models.append((turned, 1 / places))
        return models


@dataclass(frozen=True)
class SharedLine:
    """Inner products of the mean gradients on a line with each other and with all updates of a round.

    Attributes:
        weights: weight of each place on the line.
        gram: ``(M, M)`` products of the mean gradients with each other.
        products: ``(M, V)`` products with the updates.
        deviations: ``(M, M)`` products of the deviations at each place but the last with the means.
    """

    weights: list[float]
    gram: Tensor
    products: Tensor
    deviations: list[Tensor]

    @classmethod
    def along(cls, line: WeightedModels, effects: Effects, round_updates: Tensor) -> "SharedLine":
        gram, products, deviations = effects.apart(line, round_updates)
        return cls([weight for _, weight in line], gram, products, deviations)


def line_of(effects: Effects, sent: Mapping[str, Tensor], delta: Mapping[str, Tensor]) -> WeightedModels:
    """Places on the line from the sent model to the one after an update, and their weights."""
    if effects.adam is None:
        return [(_moved(sent, delta, way), weight) for way, weight in _QUADRATURE]
    # The first steps of Adam are larger than the last, so its places stand for equally many steps each: they are
    # in the middle of them, at the models before each step.
    steps = effects.adam.steps
    count = min(steps, MOST_PLACES)
    models: WeightedModels = []
    for number in range(count):
        way = (number + 0.5) / count - 0.5 / steps
        models.append((_moved(sent, delta, way), 1 / count))
    return models


def places_on_line(effects: Effects) -> int:
    """Number of places of `line_of`."""
    if effects.adam is None:
        return len(_QUADRATURE)
    return min(effects.adam.steps, MOST_PLACES)


def _moved(model: Mapping[str, Tensor], delta: Mapping[str, Tensor], way: float) -> dict[str, Tensor]:
    moved = dict(model)
    for name, change in delta.items():
        moved[name] = model[name] + way * change
    return moved
