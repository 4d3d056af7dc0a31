"""Published inference of label counts from the last layer: its base class, and Ramakrishna and Dán's estimators."""

import abc
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from fedleak.attacks.composition.base import CompositionAttack, certain, network_outputs
from fedleak.attacks.composition.estimates import CompositionEstimate
from fedleak.attacks.composition.least_squares import non_negative_factors
from fedleak.client.auxiliary_images import AUXILIARY, Auxiliary, auxiliary
from fedleak.client.class_updates import gradient_bases
from fedleak.client.last_layer import layer_change
from fedleak.client.network import ClassifierAlgorithm
from fedleak.client.simulated_clients import draw_examples, random_compositions
from fedleak.core.largest_remainders import largest_remainders
from fedleak.core.ranges import PositiveInt
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView


@dataclass(frozen=True, kw_only=True)
class LabelInference(CompositionAttack):
    """Base class of attacks that estimate label counts from the last layer and a few images of each class.

    They read the gradient from the change, which is the learning rate times the sum of the mini-batches' gradients if
    clients run plain SGD. Of other optimizers the publications say nothing. There, a rate in its place is fitted to
    simulated clients of random compositions: the changes that they make over the gradients that the attack's own model
    expects of their compositions.

    Args:
        auxiliary_per_class: number of auxiliary images used per class, None for all.
        calibration: number of simulated clients to which the rate is fitted, for optimizers other than plain SGD.
    """

    cost = "milliseconds per victim; for optimizers other than plain SGD, `calibration` simulated trainings"
    threat_model = ThreatModel(
        sees="the update of the last layer, the global model and how many examples the client reports",
        knows="the clients' learning rate (or their training algorithm) and labelled images of every class",
        needs=(ClassifierAlgorithm, "deltas", *AUXILIARY),
    )

    auxiliary_per_class: PositiveInt | None = None
    calibration: PositiveInt = 10

    def estimate(self, view: RoundView, *, generator: torch.Generator) -> CompositionEstimate:
        image_pool = auxiliary(view, layer_change(view).bias.shape[1], self.auxiliary_per_class)
        shares = self.class_weights(view, image_pool, generator=generator)
        shares = shares / shares.sum(1, keepdim=True)
        # A class is present if its share is that of half an example or more.
        present = shares > 0.5 / view.example_counts[:, None]
        return certain(shares, present)

    @abc.abstractmethod
    def class_weights(self, view: RoundView, image_pool: Auxiliary, *, generator: torch.Generator) -> Tensor:
        """``(V, K)`` non-negative estimates, not all zero in a row."""

    def step_rate(
        self,
        view: RoundView,
        image_pool: Auxiliary,
        read: Callable[[dict[str, Tensor] | None], Tensor],
        expected: Callable[[Tensor], Tensor],
        *,
        generator: torch.Generator,
    ) -> Tensor:
        """Change per step for a mean negative gradient of one, a scalar.

        The change ``(B, K)`` of interest is `read` in the view's deltas (None) or in those given; the mean negative
        gradients ``(B, K)`` are `expected` of clients with shares ``(B, K)``.
        """
        learner = view.require(ClassifierAlgorithm)
        classes = len(image_pool.by_class)
        if learner.local.plain_sgd:
            return torch.tensor(learner.learning_rate, dtype=torch.float64)
        # Simulated clients of random compositions, of the sizes that the view's clients report.
        sizes = view.example_counts[torch.arange(self.calibration) % view.victims]
        compositions = random_compositions(self.calibration, classes, generator=generator)
        counts = largest_remainders(compositions, sizes)
        examples = draw_examples(image_pool, counts, generator=generator)
        deltas = learner.simulate_examples(
            view.model,
            image_pool.images,
            image_pool.labels,
            examples,
            generator=generator,
        )
        # Least squares of the rate r in `change = r steps gradient`: r = <change, model> / <model, model>.
        changes = read(deltas).double()
        model = learner.steps(sizes)[:, None] * expected(counts.double() / sizes[:, None])
        tiny = torch.finfo(torch.float64).tiny
        rate = (changes * model).sum() / model.square().sum().clamp(min=tiny)
        return rate.clamp(min=1e-6 * learner.learning_rate)


@dataclass(frozen=True, kw_only=True)
class SoftLabels(LabelInference):
    """Soft-label estimator: label shares from the bias by one linear system, the closed form of one step.

    A step changes the bias by the learning rate times ``q - S^T q`` for shares q, where row c of S is the mean softmax
    output of class c. S is that of the global model for all steps. Non-negative least squares with a further equation,
    that the shares sum to one.

    Threat model: passive server, one round; knows the learning rate and the example counts that clients report, and has
    a few images of each class.

    References:
        [Ramakrishna22], the soft-label estimator without an initialised bias.

    Example:
        >>> import torch
        >>> from fedleak.attacks.composition import SoftLabels
        >>> from fedleak.attacks.composition.toy import toy
        >>> view, truth = toy()
        >>> estimate = SoftLabels()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["l1"].mean()), 2)
        0.0
    """

    name = "soft-labels"
    references = ("Ramakrishna22, soft-label estimator",)
    for_comparison = True  # decaf or exact-counts is at least as good in all 50 cells

    def class_weights(self, view: RoundView, image_pool: Auxiliary, *, generator: torch.Generator) -> Tensor:
        global_model = {name: parameter[None] for name, parameter in view.model.items()}
        _, logits = class_outputs(view, image_pool, global_model)
        soft = class_means(image_pool, logits.softmax(2))
        rate = self.bias_rate(view, image_pool, soft[0], generator=generator)
        return self.solve(view, soft.expand(view.victims, -1, -1), rate)

    def bias_rate(self, view: RoundView, image_pool: Auxiliary, soft: Tensor, *, generator: torch.Generator) -> Tensor:
        """See `step_rate`, for the bias; ``soft (K, K)`` of the global model."""

        def read(deltas: dict[str, Tensor] | None) -> Tensor:
            return layer_change(view, deltas).bias

        def expected(shares: Tensor) -> Tensor:
            return shares - shares @ soft  # q - S' q

        return self.step_rate(view, image_pool, read, expected, generator=generator)

    def solve(self, view: RoundView, soft: Tensor, rate: Tensor) -> Tensor:
        """``(V, K)`` solution for mean softmax outputs ``soft (V, K, K)``."""
        steps = view.require(ClassifierAlgorithm).steps(view.example_counts)
        mean_step = layer_change(view).bias.double() / (rate * steps[:, None])
        # Column c of the system is what an example of class c adds: the unit vector minus its mean prediction.
        columns = torch.eye(soft.shape[1], dtype=torch.float64) - soft
        return _sum_to_one(columns, mean_step)


@dataclass(frozen=True, kw_only=True)
class AuxiliaryGradients(LabelInference):
    """Auxiliary-gradient estimator: the bias's change as a combination of those of simulated clients of one class.

    Non-negative least squares with a further equation, that the shares sum to one. Decaf solves the same problem on
    weights and bias, with null classes and a calibrator.

    Threat model: passive server, one round; knows the clients' training algorithm and example counts, and has a few
    images of each class.

    References:
        [Ramakrishna22], the auxiliary-gradient estimator on the bias.

    Example:
        >>> import torch
        >>> from fedleak.attacks.composition import AuxiliaryGradients
        >>> from fedleak.attacks.composition.toy import toy
        >>> view, truth = toy()
        >>> estimate = AuxiliaryGradients()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["l1"].mean()), 2)
        0.0
    """

    name = "auxiliary-gradients"
    references = ("Ramakrishna22, auxiliary-gradient estimator",)
    cost = "one simulated training per class and example count"

    def class_weights(self, view: RoundView, image_pool: Auxiliary, *, generator: torch.Generator) -> Tensor:
        bias_change = layer_change(view).bias.double()
        every_class = torch.ones(bias_change.shape, dtype=torch.bool)
        bases, _ = gradient_bases(view, image_pool, every_class, sizes=view.example_counts, generator=generator)
        # A basis is the change of weights and bias in a row; the bias is its last K numbers.
        bias_bases = bases[..., -bias_change.shape[1] :].double()
        return _sum_to_one(bias_bases, bias_change)


def class_outputs(view: RoundView, image_pool: Auxiliary, models: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Features ``(B, M, F)`` and logits ``(B, M, K)`` of the M auxiliary images that are used, class after class."""
    images = image_pool.images[image_pool.by_class[image_pool.by_class >= 0]]
    features, logits = network_outputs(view.require(ClassifierAlgorithm), models, images)
    return features.double(), logits.double()


def class_labels(image_pool: Auxiliary) -> Tensor:
    """``(M,)`` classes of the auxiliary images that are used, class after class."""
    return torch.arange(len(image_pool.by_class)).repeat_interleave(image_pool.per_class)


def class_means(image_pool: Auxiliary, values: Tensor) -> Tensor:
    """``(..., M, X)`` values of the used auxiliary images -> means ``(..., K, X)``."""
    is_class = one_hot(class_labels(image_pool)).double()
    return (is_class / image_pool.per_class).T @ values


def _sum_to_one(columns: Tensor, signal: Tensor) -> Tensor:
    """Non-negative factors of ``columns (V, K, D)`` for ``signal (V, D)``, with the further equation of sum one."""
    # One more row of the system, whose solution is the sum of the factors.
    target = pad(signal, (0, 1), value=1.0)
    columns = pad(columns, (0, 1), value=1.0)
    every_factor = torch.ones(columns.shape[:2], dtype=torch.bool)
    factors = non_negative_factors(columns, target, every_factor)
    return factors.where(factors.any(1, keepdim=True), 1.0)
