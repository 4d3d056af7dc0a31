"""Class shares from the last layer alone, which needs no known learner."""

from dataclasses import dataclass

from torch import Tensor

from fedleak.attacks.composition.base import CompositionAttack, certain
from fedleak.attacks.composition.estimates import CompositionEstimate
from fedleak.client.last_layer import output_layer
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView


@dataclass(frozen=True, kw_only=True)
class LastLayerCounts(CompositionAttack):
    """Class shares in proportion to how far each entry of the last bias lies above the smallest one.

    A step of size s on a mean cross-entropy adds ``s (n_c / N - p_c)`` to the bias of class c, which has n_c of the N
    examples; p_c is the mean prediction. If predictions are uniform, ``p_c = 1 / K``, and the entry of a class without
    examples, which is then the smallest, removes both unknowns s and p_c: ``n_c / N`` is proportional to ``b_c - min
    b``. Exact, therefore, for one step of plain gradient descent on all examples, with uniform predictions (as of a
    last layer that starts at zero) and a class that the client lacks. Otherwise an approximation: it errs where the
    client has examples of every class (the rarest is taken for absent), where the global model prefers some classes,
    after many local steps, and where an optimizer such as Adam scales entries differently. It fails under noise.

    Threat model: passive server, one round; knows neither the clients' algorithm nor any data. The layer is the
    learner's where one is known, otherwise the last of the manifest, see
    `fedleak.client.last_layer.output_layer`.

    References:
        This project. The sign of the same entries in [Zhao20], section 3.1.

    Example:
        >>> import torch
        >>> from fedleak.attacks.composition import LastLayerCounts
        >>> from fedleak.attacks.composition.toy import toy
        >>> view, truth = toy()
        >>> estimate = LastLayerCounts()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["l1"].mean()), 2)
        0.1
    """

    name = "last-layer-counts"
    threat_model = ThreatModel(
        sees="the update of the last bias and how many examples the client reports",
        knows="the class of each entry",
        needs=("deltas",),
    )

    def estimate(self, view: RoundView, *, generator: object) -> CompositionEstimate:
        shares = above_smallest(view.deltas[f"{output_layer(view)}.bias"].double())
        # A class is present if its share is that of half an example or more.
        present = shares > 0.5 / view.example_counts.clamp(min=1)[:, None]
        return certain(shares, present)


def above_smallest(bias: Tensor) -> Tensor:
    """``(V, K)`` shares that sum to one, in proportion to ``bias (V, K)`` minus its smallest entry; equal for zero."""
    above = bias - bias.amin(1, keepdim=True)
    above = above.where(above.any(1, keepdim=True), 1.0)
    return above / above.sum(1, keepdim=True)
