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
        image_pool = auxiliary(view, self.classes)
        if int(image_pool.per_class.min()) < _FEWEST_PER_CLASS:
            raise ViewError(f"expected {_FEWEST_PER_CLASS} auxiliary images of every class, got fewer")
        self.generator = generator
        self.view = view
        self.counts = view.example_counts.clamp(min=1)
        self.first, self.second = self._halves(image_pool.by_class)
        self.shares = self._shares(view.deltas)

    def _halves(self, by_class: Tensor) -> tuple[RoundView, RoundView]:
        """The view with the one half of the auxiliary images, and with the other."""
        most = max(_MOST_IMAGES // self.classes, 1)
        first: list[Tensor] = []
        second: list[Tensor] = []
        for numbers in by_class:
            images = numbers[numbers >= 0]  # without padding
            images = images[torch.randperm(len(images), generator=self.generator)]
            middle = len(images) // 2
            first.append(images[:middle][:most])
            second.append(images[middle:][:most])
        return self._with_images(torch.cat(first)), self._with_images(torch.cat(second))

    def _with_images(self, numbers: Tensor) -> RoundView:
        chosen = {name: self.view.auxiliary[name][numbers] for name in (IMAGES, LABELS)}
        return dataclasses.replace(self.view, auxiliary={**self.view.auxiliary, **chosen})

    def _shares(self, deltas: Mapping[str, Tensor]) -> Tensor:
        """``(V, K)`` class shares of updates, whatever their length is."""
        change = layer_change(self.first, dict(deltas))
        rows = torch.cat([change.weight, change.bias[..., None]], dim=2).double().flatten(1)
        # Mean gradients of the classes along the training: the mean of those at its two ends.
        global_model = {name: parameter[None] for name, parameter in self.view.model.items()}
        at_start = self._descents(global_model)
        at_end = self._descents(trained_models(self.view, deltas))
        gradients = (at_start + at_end) / 2
        # Normal equations of `change = s sum_c q_c g_c`: G G' q ~ G change, whatever the step size s is.
        target = (gradients @ rows[..., None]).squeeze(2)
        return shares_on_simplex(gradients @ gradients.transpose(1, 2), target, scaled=True)

    def _descents(self, models: Mapping[str, Tensor]) -> Tensor:
        """``(B, K, D)`` mean descent direction of each class in the last layer, of models ``(B, *shape)``."""
        labels = self.first.auxiliary[LABELS].long()
        features, logits = network_outputs(self.learner, models, self.first.auxiliary[IMAGES])
        # The bias is the weight of a constant input of 1.
        inputs = torch.cat([features, features.new_ones(*features.shape[:2], 1)], dim=2).double()
        of_class = one_hot(labels, self.classes).double()
        # The cross-entropy falls fastest along (y - p) h'.
        descent = of_class - logits.softmax(2).double()
        mean_weights = of_class / of_class.sum(0)
        by_class = []
        for label in range(self.classes):
            by_class.append((descent * mean_weights[:, label, None]).transpose(1, 2) @ inputs)
        return torch.stack(by_class, dim=1).flatten(2)

    def simulate(self, shares: Tensor, half: RoundView) -> dict[str, Tensor]:
        """Updates of clients of the declared learner with ``shares (V, K)``, and examples of a half."""
        image_pool = auxiliary(half, self.classes)
        examples = draw_examples(image_pool, largest_remainders(shares, self.counts), generator=self.generator)
        deltas = self.learner.simulate_examples(
            self.view.model,
            image_pool.images,
            image_pool.labels,
            examples,
            generator=self.generator,
        )
        return as_released(self.view, deltas, generator=self.generator)

    def likeness(self, deltas: Mapping[str, Tensor]) -> Likeness:
        """How alike updates and those of their twins are."""
        twins = self.simulate(self._shares(deltas), self.first)
        return Likeness.of(deltas, twins, self.view.model, self._off_whole(deltas))

    def expected(self) -> Likeness:
        """The same of simulated clients, which run the declared learner, ``(R, V)`` each for R repetitions."""
        repetitions = max(2, -(-_COMPARED // len(self.counts)))
        likenesses = [self.likeness(self.simulate(self.shares, self.second)) for _ in range(repetitions)]
        return Likeness.stacked(likenesses)

    def _off_whole(self, deltas: Mapping[str, Tensor]) -> Tensor:
        """``(V,)`` distance of the inferred counts from whole numbers; NaN where steps or noise hide these."""
        unknown = torch.full((len(self.counts),), torch.nan, dtype=torch.float64)
        has_noise = bool(self.view.noise_scale(f"{output_layer(self.view)}.bias"))
        if self.learner.step_sums(self.counts) is None or has_noise:
            return unknown
        view = dataclasses.replace(self.first, deltas=dict(deltas))
        shares, deviation = OutputCounts().linear_shares(view, generator=self.generator)
        examples = self.counts[:, None]
        return off_whole(shares * examples, deviation * examples)
