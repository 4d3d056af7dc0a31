"""Sentences found by span checks, with what the ranks predict."""

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from torch import Tensor

from fedleak.attacks.applicability import without_texts
from fedleak.attacks.reconstruction.estimates import ReconstructionEstimate
from fedleak.core.estimates import Scores
from fedleak.core.metric import POSITIVE, SHARE, Metric
from fedleak.core.view import View


@dataclass(frozen=True, kw_only=True)
class SpanEstimate(ReconstructionEstimate):
    """Sentences of each client, with what the ranks predict.

    Attributes:
        rank: ``(V,)`` float64 rank, above the noise, of the change of the layer whose inputs tell prefixes apart: the
            first layer of a recurrent network; the deeper one of a decoder, whose first inputs are words and places.
        spare: ``(V,)`` float64 dimensions outside its span.
        predicted: ``(V,)`` float64 share of exact sentences that these predict: 1 if enough dimensions are spare and
            the rank is not below the number of sentences, else 0; NaN where a check of the attack refutes that.
    """

    inferred = "which sentences it was trained on, word by word"
    metrics = (
        *ReconstructionEstimate.metrics,
        Metric(
            "rank", "Rank is the number of independent inputs that show in a layer's change.", leak=False, span=POSITIVE
        ),
        Metric(
            "spare", "Spare is the number of dimensions in which a wrong sentence shows.", leak=False, span=POSITIVE
        ),
        Metric(
            "predicted",
            "Predicted is the share of exact sentences that the rank implies, without the truth.",
            leak=False,
            predicts="recovered",
            span=SHARE,
        ),
    )
    rank: Tensor
    spare: Tensor
    predicted: Tensor

    @classmethod
    def inapplicable(cls, view: View, truth: Collection[str]) -> str | None:
        return without_texts(view, truth)

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        scores = super().score(view, truth)
        metrics = {**scores.metrics, "rank": self.rank, "spare": self.spare}
        if bool(self.predicted.isfinite().any()):
            metrics["predicted"] = self.predicted
        return dataclasses.replace(scores, metrics=metrics)
