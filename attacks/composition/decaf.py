"""Decaf (Data Distribution Decompose Attack): decomposition of a client's change into the changes of single classes."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedleak.attacks.composition.base import CompositionAttack, certain
from fedleak.attacks.composition.estimates import CompositionEstimate
from fedleak.attacks.composition.least_squares import non_negative_factors
from fedleak.client.auxiliary_images import AUXILIARY, auxiliary
from fedleak.client.class_updates import gradient_bases
from fedleak.client.last_layer import flat_change, layer_change
from fedleak.client.network import ClassifierAlgorithm
from fedleak.core.attack import Variants
from fedleak.core.ranges import PositiveInt
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

PublishedRule = Literal["published", "none"]

Solver = Literal["exact", "early-stopped"]
CalibratorShare = Literal["divided", "whole"]


@dataclass(frozen=True, kw_only=True)
class Decaf(CompositionAttack):
    """Decaf, class composition inference by non-negative least squares on the classes' changes.

    The published attack (sections III-C to III-F), with an exact solver. (1) Take the change of the last layer. (2)
    Find null classes by the signs of its entries. (3) Compute gradient bases: train from the global model on the
    auxiliary images of each class, and once on those of all present classes. (4) Find the non-negative combination of
    the bases that is closest to the change.

    Threat model: passive server, one round; knows the clients' training algorithm, and has a few images of each class.

    Args:
        null_classes: ``published`` rule, or ``none`` to skip step 2 (section IV-E).
        bases: images on which a basis is trained. ``equal-steps``: as many as the victim reports, the auxiliary ones in
            turn, so that a basis makes as many steps as the victim. ``one-epoch``: every auxiliary image once. The
            paper does not say which; its table VIII (0.6 s for all bases, 23 s for the users' training) fits one epoch.
        calibrator: whether the basis of all present classes is used (section IV-F).
        calibrator_share: reading of equation 21, see `decompose`.
        solver: how the least squares are solved, see `decompose`.
        layer: layer whose change is decomposed, e.g. ``body.0``; None for the last one. Null classes are always found
            in the last layer, the only one whose rows belong to classes (section V-A).
        auxiliary_per_class: number of auxiliary images used per class, None for all.

    Variants:
        early: the least squares are stopped after 10 steps of projected gradient descent. The paper uses gradient
            descent with "e.g., 1000" epochs and gives no step size. Its printed proportions are close to equal shares;
            early stopping is a possible explanation.
        one-epoch: bases are trained for one epoch only, which has fewer steps than a client makes: a reading of
            Algorithm 2.
        one-epoch-whole: bases of one epoch, and the calibrator's factor is added to each class instead of divided among
            them. To first order, a basis of all classes after one epoch is the sum of the classes' bases, which gives
            this reading of equation 21.

    References:
        [Dai24], Algorithms 1 to 3.

    Example:
        >>> import torch
        >>> from fedleak.attacks.composition import Decaf
        >>> from fedleak.attacks.composition.toy import toy
        >>> view, truth = toy()
        >>> estimate = Decaf()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["l1"].mean()), 2)
        0.02
    """

    name = "decaf"
    references: ClassVar[tuple[str, ...]] = ("Decaf, Algorithms 1 to 3",)
    cost = "one simulated training per class, and one per victim's set of present classes"
    threat_model = ThreatModel(
        sees="the update of the last layer and the global model",
        knows="the clients' training algorithm and labelled images of every class that no client has",
        needs=(ClassifierAlgorithm, "deltas", *AUXILIARY),
    )
    variants: ClassVar[Variants] = {
        "early": {"solver": "early-stopped"},
        "one-epoch": {"bases": "one-epoch"},
        "one-epoch-whole": {"bases": "one-epoch", "calibrator_share": "whole"},
    }

    null_classes: PublishedRule = "published"
    threshold: float = 0.0
    bases: Literal["equal-steps", "one-epoch"] = "equal-steps"
    calibrator: bool = True
    calibrator_share: CalibratorShare = "divided"
    solver: Solver = "exact"
    layer: str | None = None
    auxiliary_per_class: PositiveInt | None = None

    def estimate(self, view: RoundView, *, generator: torch.Generator) -> CompositionEstimate:
        change = flat_change(view, self.layer)
        present = published_present(view, self.null_classes, self.threshold)
        image_pool = auxiliary(view, present.shape[1], self.auxiliary_per_class)
        sizes = None
        if self.bases == "equal-steps":
            sizes = view.example_counts
        bases, calibrator = gradient_bases(
            view, image_pool, present, sizes=sizes, layer=self.layer, generator=generator
        )
        proportions = decompose(
            change,
            bases,
            calibrator if self.calibrator else None,
            present,
            solver=self.solver,
            calibrator_share=self.calibrator_share,
        )
        return certain(proportions, present)


def decompose(
    target: Tensor,
    bases: Tensor,
    united: Tensor | None,
    present: Tensor,
    *,
    solver: Solver,
    calibrator_share: CalibratorShare = "divided",
    steps: int = 10,
) -> Tensor:
    """``(V, K)`` proportions of the present classes, of sum one (Algorithm 3, equations 19 to 21).

    Minimises ``|sum_c a_c g_c + a_0 g_0 - G|^2`` over ``a >= 0``. The formula of the proportions, equation 21, is
    missing from our text of the paper; its tables repeat the smallest proportion of a row exactly, which corresponds to
    ``a_c = 0`` for several classes. Two readings for k present classes: ``q_c ~ a_c + a_0 / k``, right to first order
    if all bases make equally many steps, because g_0 is then the mean of the classes' bases; and ``q_c ~ a_c + a_0``,
    right if they make one epoch, because g_0 is then their sum.

    G are the clients' changes, ``target (V, D)``; g_c those of the classes, ``bases (K, D)`` or ``(V, K, D)``; g_0 the
    calibrator, that of all present classes together, ``united (V, D)`` or None. The solver is ``exact``, or
    ``early-stopped``: a few steps of projected gradient descent from ``a = 1 / (k + 1)``, which biases the estimate
    towards equal shares. What each class gets of the calibrator's factor is ``divided``, or ``whole`` for each.
    """
    columns = bases.double().expand(len(target), -1, -1)
    if united is not None:
        columns = torch.cat([columns, united.double()[:, None]], dim=1)
    # Null classes get no factor; the calibrator, the last column, always may.
    calibrators = columns.shape[1] - present.shape[1]
    allowed = torch.cat([present, present.new_ones(len(present), calibrators)], dim=1)
    if solver == "exact":
        factors = non_negative_factors(columns, target, allowed)
    else:
        gram = columns @ columns.transpose(1, 2)
        product = (columns @ target.double()[..., None]).squeeze(2)
        factors = _stopped(gram, product, allowed, steps)
    # Equation 21: q_c ~ a_c + a_0 / k, or q_c ~ a_c + a_0.
    classes = present.shape[1]
    shares = factors[:, :classes]
    if united is not None:
        calibrator_factor = factors[:, classes:]
        if calibrator_share == "divided":
            calibrator_factor = calibrator_factor / present.sum(1, keepdim=True)
        shares = shares + calibrator_factor
    shares = shares * present
    # Equal shares of the present classes if all factors are zero.
    total = shares.sum(1, keepdim=True)
    equal = present / present.sum(1, keepdim=True)
    return torch.where(total > 0, shares / total.where(total > 0, 1), equal)


def _stopped(gram: Tensor, product: Tensor, allowed: Tensor, steps: int) -> Tensor:
    """Factors ``(V, C)`` after a few steps of projected gradient descent, from equal ones."""
    # A step of 1 over the largest eigenvalue of the Gram matrix always descends.
    allowed_pairs = allowed[:, :, None] & allowed[:, None, :]
    largest_eigenvalue = torch.linalg.eigvalsh(gram * allowed_pairs)[:, -1:]
    factors = allowed / allowed.sum(1, keepdim=True).double()
    for _ in range(steps):
        gradient = (gram @ factors[..., None]).squeeze(2) - product
        factors = (factors - gradient / largest_eigenvalue.clamp(min=1e-300)).clamp(min=0) * allowed
    return factors


def published_rule(weight: Tensor, threshold: float = 0.0) -> Tensor:
    """``(V, K)`` True where an entry of the class's row of ``weight (V, K, F)`` grew above a threshold (Algorithm 1).

    Each step adds ``-lr mean(p_c h)`` to the row of a null class c, which is at most 0 for non-negative features h. So
    a null class has no positive entry, for every optimizer that scales an average of such steps by positive numbers and
    uses no weight decay. The converse does not hold: all entries of a rare class can shrink. The threshold is 0 for
    non-negative features; the paper suggests 0.001 for LeakyReLU (section V-A), of changes divided by the learning rate
    (equation 4).
    """
    return (weight > threshold).any(2)


def published_present(view: RoundView, rule: PublishedRule, threshold: float) -> Tensor:
    """``(V, K)`` bool by the published rule; a client without any positive entry has the class whose row grew most.

    The threshold is for the change divided by the learning rate (equation 4).
    """
    weight = layer_change(view).weight
    if rule == "none":
        return torch.ones(weight.shape[:2], dtype=torch.bool)
    scaled_threshold = 0.0
    if threshold:  # of a change divided by the learning rate, which only then must be known
        scaled_threshold = threshold * view.require(ClassifierAlgorithm).learning_rate
    return with_largest_class_if_empty(published_rule(weight, scaled_threshold), weight)


def with_largest_class_if_empty(present: Tensor, weight: Tensor) -> Tensor:
    """Adds the class whose row grew most to clients without any present class."""
    largest = torch.nn.functional.one_hot(weight.amax(2).argmax(1), present.shape[1]).bool()
    return torch.where(present.any(1, keepdim=True), present, largest)
