"""iLRG: instance-wise label restoration from gradients."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.composition.counts import CountAttack, CountEstimate, count_estimate
from fedleak.client.last_layer import layer_change, output_layer
from fedleak.client.network import ClassifierAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView


@dataclass(frozen=True, kw_only=True)
class ILRG(CountAttack):
    """Instance-wise label restoration, iLRG: rounded least squares with a prediction recovered for each class.

    The gradients of a class's weights over that of its bias are taken for the mean feature of its examples, and the
    softmax that the last layer makes of it for row c of P. The K equations ``(P' - I) n = N g`` of the bias's gradient
    g, and that the counts sum to N, are solved by the pseudo-inverse; negative counts become 0, counts above N too, and
    the rest is rounded, so that the counts may sum to another number. The steps of several mini-batches are taken for
    one batch of all examples.

    Threat model: passive server, one round; knows the learning rate and the example counts that clients report.

    References:
        [Ma23], section 3; the rounding is that of the published code.

    Example:
        >>> import torch
        >>> from fedleak.attacks.composition import ILRG
        >>> from fedleak.attacks.composition.toy import toy
        >>> view, truth = toy()
        >>> estimate = ILRG()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["l1"].mean()), 2)
        0.02
    """

    name = "ilrg"
    references = ("Ma23, section 3",)
    threat_model = ThreatModel(
        sees="the update of the last layer, the global model and how many examples the client reports",
        knows="the clients' learning rate",
        needs=(ClassifierAlgorithm, "deltas", "model"),
    )

    def estimate(self, view: RoundView, *, generator: torch.Generator) -> CountEstimate:
        rates = view.require(ClassifierAlgorithm).step_sums(view.example_counts)
        if rates is None:
            raise ViewError("expected clients with SGD, got an optimizer that scales parameters or clips examples")
        change = layer_change(view)
        layer = output_layer(view)
        # The gradient of a class's weights over that of its bias is a mean feature, whose prediction is a row of P.
        bias_gradient = -change.bias.double() / rates[:, None]
        weight_gradient = -change.weight.double() / rates[:, None, None]
        feature = weight_gradient / bias_gradient.where(bias_gradient != 0, 1e-30)[..., None]
        logits = feature @ view.model[f"{layer}.weight"].double().T + view.model[f"{layer}.bias"].double()
        return count_estimate(restored(logits.softmax(2), bias_gradient, view.example_counts))


def restored(soft: Tensor, bias: Tensor, sizes: Tensor) -> Tensor:
    """``(V, K)`` int64 counts, rounded, from the prediction for class c in row c of ``soft (V, K, K)``.

    ``bias (V, K)`` is the mean gradient of the bias of ``sizes (V,)`` examples.
    """
    victims, classes = bias.shape
    # Unknown n: sum n = N, and (P' - I) n = N g.
    equations = soft.transpose(1, 2) - torch.eye(classes, dtype=torch.float64)
    sum_of_counts = torch.ones(victims, 1, classes, dtype=torch.float64)
    target = torch.cat([sizes[:, None].double(), sizes[:, None] * bias], dim=1)
    solution = torch.linalg.pinv(torch.cat([sum_of_counts, equations], dim=1)) @ target[..., None]
    counts: Tensor = solution.squeeze(2).clamp(min=0).round()
    counts[counts > sizes[:, None]] = 0  # as the published code does
    return counts.long()
