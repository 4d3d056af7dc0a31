"""Decaf (Data Distribution Decompose Attack): a client's change as a mixture of the classes' changes."""

from typing import Literal

import torch
from torch import Tensor

from attacks.base import CompositionEstimate, ServerView, ThreatModel
from attacks.composition.decomposition import Solver, decompose
from attacks.composition.null_classes import published_present
from attacks.composition.rounds import CompositionAttack, Rounds, certain
from attacks.composition.view import AUXILIARY, Auxiliary, auxiliary, flat_change


class Decaf(CompositionAttack):
    """The published attack (sections III-C to III-F), with the least squares solved exactly.

    (1) The change of the last layer. (2) Null classes by the sign of its entries. (3) Gradient bases: one local
    training from the global model on the auxiliary images of each class, and one on all present classes together.
    (4) The non-negative combination of the bases that is nearest to the change.

    Threat model: passive server, one round; knows the clients' training algorithm, and has a few images of each class.

    Args:
        null_classes: the published rule, or ``none`` to leave this step out (section IV-E).
        threshold: of the rule.
        calibrator: whether the united base takes part (section IV-F).
        layer: the layer whose change is decomposed, such as ``body.0``; None for the last one. Only in the last one do
            rows belong to classes (section V-A), so null classes are always looked for there.
        auxiliary_per_class: use only so many auxiliary images of each class, None for all.
        rounds: see `CompositionAttack`.
    """

    name = "decaf"
    solver: Solver = "exact"
    threat_model = ThreatModel(
        sees="the update of the last layer and the global model",
        knows="the clients' training algorithm and labelled images of every class that no client has",
        needs=("learner", "deltas", *AUXILIARY),
    )

    def __init__(
        self,
        *,
        null_classes: Literal["published", "none"] = "published",
        threshold: float = 0.0,
        calibrator: bool = True,
        layer: str | None = None,
        auxiliary_per_class: int | None = None,
        rounds: Rounds = "last",
    ) -> None:
        super().__init__(rounds=rounds)
        if null_classes not in ("published", "none"):
            raise ValueError(f"expected null_classes published or none, got {null_classes!r}")
        if auxiliary_per_class is not None and auxiliary_per_class < 1:
            raise ValueError(f"expected auxiliary_per_class of at least 1, got {auxiliary_per_class}")
        self.null_classes: Literal["published", "none"] = null_classes
        self.threshold = threshold
        self.calibrator = calibrator
        self.layer = layer
        self.auxiliary_per_class = auxiliary_per_class

    def estimate(self, view: ServerView, *, generator: torch.Generator) -> CompositionEstimate:
        """See `CompositionAttack.estimate`."""
        change = flat_change(view, self.layer)
        present = published_present(view, self.null_classes, self.threshold)
        known = auxiliary(view, present.shape[1], self.auxiliary_per_class)
        bases, united = gradient_bases(view, known, present, layer=self.layer, generator=generator)
        proportions = decompose(change, bases, united if self.calibrator else None, present, solver=self.solver)
        return certain(proportions, present)


class DecafEarlyStopped(Decaf):
    """The published attack with the least squares left after 10 steps of projected gradient; the arguments are Decaf's.

    The paper names gradient descent and "e.g., 1000" epochs but no step size. Stopping early is our reading of how its
    printed proportions come to lie so near to equal shares.
    """

    name = "decaf-early"
    solver: Solver = "early-stopped"


def gradient_bases(
    view: ServerView, known: Auxiliary, present: Tensor, *, layer: str | None = None, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Algorithm 2 for all victims at once; a set of present classes that several victims share is trained on once.

    Args:
        view: what the server has.
        known: its images.
        present: ``(V, K)`` bool.
        layer: the layer in question, None for the last one.
        generator: source of the order of mini-batches.

    Returns:
        ``(K, D)`` change of the layer by class, and ``(V, D)`` by the union of each victim's classes.
    """
    sets, own = torch.unique(present, dim=0, return_inverse=True)
    classes, width = known.by_class.shape
    single = torch.full((classes, classes * width), -1)
    single[:, :width] = known.by_class
    union = torch.where(sets[:, :, None], known.by_class, -1).flatten(1)
    examples = torch.cat([single, union])
    # Padding goes last; the order of what is real stays.
    examples = examples.gather(1, (examples < 0).long().argsort(dim=1, stable=True))
    deltas = view.classifier().simulate_examples(view.model, known.images, known.labels, examples, generator=generator)
    flat = flat_change(view, layer, deltas)
    return flat[:classes], flat[classes:][own]
