"""Estimate of attacks on a linear layer: records, with the PSNR that the declared noise allows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attacks.estimates import Scores
from attacks.reconstruction.base import reconstruction
from attacks.reconstruction.estimates import ReconstructionEstimate
from attacks.reconstruction.linear_layer import LayerUpdate
from protocol.metric_table import Metric
from protocol.view import View


@dataclass(frozen=True, kw_only=True)
class LinearEstimate(ReconstructionEstimate):
    """Records with the predicted error of each client's.

    Attributes:
        predicted: ``(V,)`` PSNR in dB that follows from the update and the declared noise, NaN if nothing is predicted.
    """

    metrics = (
        *ReconstructionEstimate.metrics,
        Metric(
            "predicted-psnr",
            "Predicted PSNR is that of the mean squared error which follows from the declared noise.",
            leak=False,
            predicts="psnr",
        ),
    )
    predicted: Tensor

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        scores = super().score(view, truth)
        if bool(self.predicted.isnan().all()):
            return scores
        return replace(scores, metrics={**scores.metrics, "predicted-psnr": self.predicted})


def linear_estimate(
    layer: LayerUpdate,
    records: Sequence[Tensor],
    labels: Sequence[Tensor] | None,
    *,
    certain: bool | Sequence[Tensor] = False,
    predicted: Tensor | None = None,
) -> LinearEstimate:
    """Estimate of records ``(M_v, D)`` of each client, with classes ``(M_v,)`` if they are known.

    `certain` is whether records are certified: all of them, or ``(M_v,)`` for each client; under noise none is.
    """
    shaped = [own.float().reshape(len(own), *layer.shape) for own in records]
    said = [torch.full((len(own),), certain) for own in records] if isinstance(certain, bool) else certain
    sure = [own.bool() & (not layer.noise) for own in said]
    made = reconstruction(shaped, labels=labels, certified=sure)
    nothing = torch.full((len(records),), torch.nan, dtype=torch.float64)
    return LinearEstimate(
        records=made.records,
        labels=made.labels,
        certified=made.certified,
        count=made.count,
        predicted=nothing if predicted is None else predicted,
    )
