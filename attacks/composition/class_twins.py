"""Simulated twins of clients: with the class shares that an update shows, so that the two updates should be alike."""

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedleak.attacks.composition.base import network_outputs, trained_models
from fedleak.attacks.composition.counts import off_whole
from fedleak.attacks.composition.least_squares import shares_on_simplex
from fedleak.attacks.composition.output_counts import OutputCounts
from fedleak.client.auxiliary_images import IMAGES, LABELS, auxiliary
from fedleak.client.last_layer import layer_change, output_layer
from fedleak.client.network import ClassifierAlgorithm
from fedleak.client.simulated_clients import as_released, draw_examples
from fedleak.core.errors import ViewError
from fedleak.core.largest_remainders import largest_remainders
from fedleak.core.likeness import Likeness, Twins
from fedleak.core.view import RoundView

_FEWEST_PER_CLASS = 4
"""Images of every class with which the pool can be halved: one half for twins, the other for clients."""
_MOST_IMAGES = 2000
"""Images of a half that are used: every client's model is applied to each of them."""
_COMPARED = 32
"""Simulated clients that show how alike a client and its twin are, or a few more."""


class ClassTwins(Twins):
    """Twins of clients that train a classifier: with the class shares that an update shows.

    (1) The auxiliary images are halved. (2) A client's class shares are inferred: non-negative least squares of the
    last layer's change on the mean gradients of the classes, those of the first half, with an unknown step size. So the
    shares do not depend on the learning rate. (3) Its twin is a simulated client of the declared learner, with these
    shares, and examples of the first half. (4) The same is done for simulated clients with examples of the second half
    and the same shares: of a client that runs the declared learner, the update is as like its twin's as theirs are,
    apart from what distinguishes the clients' images from the auxiliary ones.

    Raises:
        ViewError: the clients train no classifier, or there are fewer than `_FEWEST_PER_CLASS` images of a class.
    """

    def __init__(self, view: RoundView, generator: torch.Generator) -> None:
        self.learner = view.require(ClassifierAlgorithm)
        if not {IMAGES, LABELS} <= view.auxiliary.keys():
            raise ViewError("expected auxiliary images with their labels, got none")
        self.classes = layer_change(view).bias.shape[1]
        known = auxiliary(view, self.classes)
        if int(known.per_class.min()) < _FEWEST_PER_CLASS:
            raise ViewError(f"expected {_FEWEST_PER_CLASS} auxiliary images of every class, got fewer")
        self.generator, self.view = generator, view
        self.counts = view.example_counts.clamp(min=1)
        self.first, self.second = self._halves(known.by_class)
        self.shares = self._shares(view.deltas)

    def _halves(self, by_class: Tensor) -> tuple[RoundView, RoundView]:
        """The view with the one half of the auxiliary images, and with the other."""
        most = max(_MOST_IMAGES // self.classes, 1)
        halves: tuple[list[Tensor], list[Tensor]] = ([], [])
        for numbers in by_class:
            images = numbers[numbers >= 0]
            images = images[torch.randperm(len(images), generator=self.generator)]
            middle = len(images) // 2
            halves[0].append(images[:middle][:most])
            halves[1].append(images[middle:][:most])
        first, second = (self._with_images(torch.cat(half)) for half in halves)
        return first, second

    def _with_images(self, numbers: Tensor) -> RoundView:
        chosen = {name: self.view.auxiliary[name][numbers] for name in (IMAGES, LABELS)}
        return dataclasses.replace(self.view, auxiliary={**self.view.auxiliary, **chosen})

    def _shares(self, deltas: Mapping[str, Tensor]) -> Tensor:
        """``(V, K)`` class shares of updates, whatever their length is."""
        change = layer_change(self.first, dict(deltas))
        rows = torch.cat([change.weight, change.bias[..., None]], dim=2).double().flatten(1)
        start = {name: value[None] for name, value in self.view.model.items()}
        gradients = (self._descents(start) + self._descents(trained_models(self.view, deltas))) / 2
        target = (gradients @ rows[..., None]).squeeze(2)
        return shares_on_simplex(gradients @ gradients.transpose(1, 2), target, scaled=True)

    def _descents(self, models: Mapping[str, Tensor]) -> Tensor:
        """``(B, K, D)`` mean descent direction of each class in the last layer, of models ``(B, *shape)``."""
        labels = self.first.auxiliary[LABELS].long()
        features, logits = network_outputs(self.learner, models, self.first.auxiliary[IMAGES])
        inputs = torch.cat([features, features.new_ones(*features.shape[:2], 1)], dim=2).double()
        of_class = one_hot(labels, self.classes).double()
        wrong = of_class - logits.softmax(2).double()
        mean = of_class / of_class.sum(0)
        parts = [(wrong * mean[:, label, None]).transpose(1, 2) @ inputs for label in range(self.classes)]
        return torch.stack(parts, dim=1).flatten(2)

    def simulate(self, shares: Tensor, half: RoundView) -> dict[str, Tensor]:
        """Updates of clients of the declared learner with ``shares (V, K)``, and examples of a half."""
        known = auxiliary(half, self.classes)
        examples = draw_examples(known, largest_remainders(shares, self.counts), generator=self.generator)
        deltas = self.learner.simulate_examples(
            self.view.model, known.images, known.labels, examples, generator=self.generator
        )
        return as_released(self.view, deltas, generator=self.generator)

    def likeness(self, deltas: Mapping[str, Tensor]) -> Likeness:
        """How alike updates and those of their twins are."""
        twins = self.simulate(self._shares(deltas), self.first)
        return Likeness.of(deltas, twins, self.view.model, self._off_whole(deltas))

    def expected(self) -> Likeness:
        """The same of simulated clients, which run the declared learner, ``(R, V)`` each for R repetitions."""
        repetitions = max(2, -(-_COMPARED // len(self.counts)))
        return Likeness.stacked([self.likeness(self.simulate(self.shares, self.second)) for _ in range(repetitions)])

    def _off_whole(self, deltas: Mapping[str, Tensor]) -> Tensor:
        nothing = torch.full((len(self.counts),), torch.nan, dtype=torch.float64)
        if self.learner.step_sums(self.counts) is None or self.view.noise_scale(f"{output_layer(self.view)}.bias"):
            return nothing
        view = dataclasses.replace(self.first, deltas=dict(deltas))
        shares, deviation = OutputCounts().linear_shares(view, generator=self.generator)
        return off_whole(shares * self.counts[:, None], deviation * self.counts[:, None])
