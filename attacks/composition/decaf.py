"""Decaf (Data Distribution Decompose Attack): decomposition of a client's change into the changes of single classes."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from scipy.optimize import nnls
from torch import Tensor

from attacks.composition.base import AUXILIARY, Auxiliary, CompositionAttack, auxiliary, certain, flat_change
from attacks.composition.null_classes import PublishedRule, published_present
from attacks.estimates import CompositionEstimate
from protocol.ranges import PositiveInt
from protocol.simulators import ClassifierSimulator
from protocol.threat_model import ThreatModel
from protocol.view import ServerView

Solver = Literal["exact", "early-stopped"]


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
        threshold: see `published_rule`.
        calibrator: whether the basis of all present classes is used (section IV-F).
        layer: layer whose change is decomposed, e.g. ``body.0``; None for the last one. Null classes are always found
            in the last layer, the only one whose rows belong to classes (section V-A).
        auxiliary_per_class: number of auxiliary images used per class, None for all.
        rounds: see `CompositionAttack`.

    References:
        Dai, Zhou and Fu, "Decaf: Data Distribution Decompose Attack against Federated Learning", 2024,
        arXiv:2405.15316, Algorithms 1 to 3.
    """

    name = "decaf"
    references: ClassVar[tuple[str, ...]] = ("Decaf, Algorithms 1 to 3",)
    cost = "one simulated training per class, and one per victim's set of present classes"
    solver: ClassVar[Solver] = "exact"
    threat_model = ThreatModel(
        sees="the update of the last layer and the global model",
        knows="the clients' training algorithm and labelled images of every class that no client has",
        needs=("learner:ClassifierSimulator", "deltas", *AUXILIARY),
    )

    null_classes: PublishedRule = "published"
    threshold: float = 0.0
    calibrator: bool = True
    layer: str | None = None
    auxiliary_per_class: PositiveInt | None = None

    def estimate(self, view: ServerView, *, generator: torch.Generator) -> CompositionEstimate:
        change = flat_change(view, self.layer)
        present = published_present(view, self.null_classes, self.threshold)
        known = auxiliary(view, present.shape[1], self.auxiliary_per_class)
        bases, united = gradient_bases(view, known, present, layer=self.layer, generator=generator)
        proportions = decompose(change, bases, united if self.calibrator else None, present, solver=self.solver)
        return certain(proportions, present)


class DecafEarlyStopped(Decaf):
    """Decaf with the least squares stopped after 10 steps of projected gradient descent.

    The paper uses gradient descent with "e.g., 1000" epochs and gives no step size. Its printed proportions are close
    to equal shares; early stopping is a possible explanation.

    Threat model: that of `Decaf`, as are the arguments.

    References:
        This project; a variant of Dai, Zhou and Fu, "Decaf", 2024, arXiv:2405.15316, Algorithm 3.
    """

    name = "decaf-early"
    references = ()
    solver = "early-stopped"


def gradient_bases(
    view: ServerView, known: Auxiliary, present: Tensor, *, layer: str | None = None, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Gradient bases (Algorithm 2) for present classes ``(V, K)``; each distinct set of classes is trained once.

    Returns:
        ``(K, D)`` change of the layer (see `flat_change`) for each class, and ``(V, D)`` for each victim's present
        classes together.
    """
    sets, own = torch.unique(present, dim=0, return_inverse=True)
    classes, width = known.by_class.shape
    single = torch.full((classes, classes * width), -1)
    single[:, :width] = known.by_class
    union = torch.where(sets[:, :, None], known.by_class, -1).flatten(1)
    examples = torch.cat([single, union])
    # Moves the padding to the end; the order of the rest stays.
    examples = examples.gather(1, (examples < 0).long().argsort(dim=1, stable=True))
    deltas = view.require(ClassifierSimulator).simulate_examples(
        view.model, known.images, known.labels, examples, generator=generator
    )
    flat = flat_change(view, layer, deltas)
    return flat[:classes], flat[classes:][own]


def decompose(
    target: Tensor, bases: Tensor, united: Tensor | None, present: Tensor, *, solver: Solver, steps: int = 10
) -> Tensor:
    """Proportions of the present classes (Algorithm 3, equations 19 to 21).

    Minimises ``|sum_c a_c g_c + a_0 g_0 - G|^2`` over ``a >= 0`` and returns ``q_c ~ a_c + a_0 / k`` for k present
    classes. The formulas are missing from our text of the paper; its tables repeat the smallest proportion of a row
    exactly, which corresponds to ``a_c = 0`` for several classes.

    Args:
        target: ``(V, D)`` the clients' changes G.
        bases: ``(K, D)`` the classes' changes g_c.
        united: ``(V, D)`` the calibrator g_0, the change of all present classes together; None for none.
        present: ``(V, K)`` bool.
        solver: ``exact``, or ``early-stopped``: a few steps of projected gradient descent from ``a = 1 / (k + 1)``,
            which biases the estimate towards equal shares.
        steps: number of steps of ``early-stopped``.

    Returns:
        ``(V, K)`` proportions, each row summing to one.
    """
    columns = bases.double().expand(len(target), *bases.shape)
    if united is not None:
        columns = torch.cat([columns, united.double()[:, None]], dim=1)
    gram = columns @ columns.transpose(1, 2)
    product = (columns @ target.double()[..., None]).squeeze(2)
    allowed = torch.cat([present, present.new_ones(len(present), columns.shape[1] - present.shape[1])], dim=1)
    factors = _exact(columns, target, allowed) if solver == "exact" else _stopped(gram, product, allowed, steps)
    classes = present.shape[1]
    shares = factors[:, :classes] + (0 if united is None else factors[:, classes:] / present.sum(1, keepdim=True))
    shares = shares * present
    total = shares.sum(1, keepdim=True)
    equal = present / present.sum(1, keepdim=True)
    return torch.where(total > 0, shares / total.where(total > 0, 1), equal)


def _exact(columns: Tensor, target: Tensor, allowed: Tensor) -> Tensor:
    """Non-negative least squares (Lawson and Hanson); a loop, because every client has its own active set."""
    factors = torch.zeros(allowed.shape, dtype=torch.float64)
    for client, chosen in enumerate(allowed):
        matrix, right = columns[client][chosen].T, target[client].double()
        orthogonal, triangle = torch.linalg.qr(matrix)
        solution, _ = nnls(triangle.numpy(), (orthogonal.T @ right).numpy())
        factors[client, chosen] = torch.from_numpy(solution)
    return factors


def _stopped(gram: Tensor, product: Tensor, allowed: Tensor, steps: int) -> Tensor:
    largest = torch.linalg.eigvalsh(gram * (allowed[:, :, None] & allowed[:, None, :]))[:, -1:]
    factors = allowed / allowed.sum(1, keepdim=True).double()
    for _ in range(steps):
        gradient = (gram @ factors[..., None]).squeeze(2) - product
        factors = (factors - gradient / largest.clamp(min=1e-300)).clamp(min=0) * allowed
    return factors
