"""A new question, how many served items a client interacted with, and its metric, attack and baseline."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.core.attack import Attack
from fedleak.core.estimates import Estimate, Scores, check_tensor
from fedleak.core.metric import POSITIVE, Metric
from fedleak.core.taxonomy import PROPERTY
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import ITEM_EMBEDDING, RoundView, View


@dataclass(frozen=True, kw_only=True)
class CountEstimate(Estimate):
    """The number of interactions of each client.

    Attributes:
        counts: ``(V,)``.
    """

    inferred = "how many of the items it was shown the client interacted with"
    truth = ("labels",)
    metrics = (
        Metric(
            name="count-error",
            meaning="The count error is the relative error of the number of interactions, 0 for certainty.",
            lower_is_better=True,
            judged=True,
            span=POSITIVE,
        ),
    )
    counts: Tensor

    def check(self, view: View) -> None:
        check_tensor("counts", self.counts, (view.victims,))

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """Relative errors."""
        true = (truth["labels"] > 0.5).sum(1).double()
        return Scores({"count-error": (self.counts.double() - true).abs() / true.clamp(min=1)})


class CountByNorm(Attack):
    """Count of the items whose embedding moved more than a share of the largest movement.

    Threat model: a passive server, one round.

    Args:
        share: share of the largest movement above which an item counts.

    References:
        This project.
    """

    name = "count-by-norm"
    family = "interaction-counts"
    taxonomy = PROPERTY
    threat_model = ThreatModel(
        sees="the update of the item embeddings and which items were served",
        knows="nothing else",
        needs=("served", f"deltas:{ITEM_EMBEDDING}"),
    )
    estimates = CountEstimate

    def __init__(self, *, share: float = 0.5) -> None:
        self.share = share

    def run(self, view: RoundView, *, generator: torch.Generator) -> CountEstimate:
        norms = view.deltas[ITEM_EMBEDDING].norm(dim=2) * view.served_mask
        return CountEstimate(counts=(norms > self.share * norms.amax(1, keepdim=True)).sum(1).double())


class CountGuess(Attack):
    """A fixed share of the served items: the baseline of attacks on counts.

    Threat model: a server that knows which items were served, and no update.

    References:
        This project.
    """

    name = "count-guess"
    family = "interaction-counts"
    taxonomy = PROPERTY
    baseline = True
    threat_model = ThreatModel(sees="which items were served", knows="nothing else", needs=("served",))
    estimates = CountEstimate

    def run(self, view: RoundView, *, generator: torch.Generator) -> CountEstimate:
        return CountEstimate(counts=0.2 * view.served_mask.sum(1).double())
