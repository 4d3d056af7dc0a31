"""What participation alone says of sums over rounds: after how many rounds each client's statistics are determined."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.attacks.applicability import without_sums
from fedleak.attacks.sums_over_rounds.base import USUAL
from fedleak.attacks.sums_over_rounds.estimates import PREDICTED, first_revealed
from fedleak.attacks.sums_over_rounds.received_sums import Participants
from fedleak.attacks.sums_over_rounds.tracking import deviations_after, rank
from fedleak.core.attack import Attack
from fedleak.core.estimates import Detail, Estimate, EstimateError, Scores
from fedleak.core.history import History
from fedleak.core.metric import Metric
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import View

_DETERMINED = 1e-2
"""Part of a statistic's spread over the clients that is left, below which it is determined."""


@dataclass(frozen=True, kw_only=True)
class ParticipationEstimate(Estimate):
    """After how many rounds the sums determine an additive statistic of each client, whatever its value.

    Attributes:
        clients: ``(U,)`` pseudonyms.
        first: ``(U,)`` number of rounds, NaN for clients whom no number of the recorded rounds separates.
        rows: table of the rank.
    """

    inferred = "after how many rounds sums of changing groups determine what is additive in it"
    truth = ()
    metrics: ClassVar[tuple[str | Metric, ...]] = (
        PREDICTED,
        Metric(
            "determined",
            "Determined is the share of clients of whom every additive statistic follows from exact sums.",
            binary=True,
            span=(0.0, 1.0),
        ),
    )
    clients: Tensor
    first: Tensor
    rows: tuple[Detail, ...]

    @classmethod
    def inapplicable(cls, view: View, truth: Collection[str]) -> str | None:
        return without_sums(view, truth)

    def check(self, view: View) -> None:
        if self.first.shape != self.clients.shape:
            raise EstimateError(f"first: expected shape {tuple(self.clients.shape)}")

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """The numbers themselves: no ground truth is needed."""
        metrics = {"determined": self.first.isfinite().double()}
        if bool(self.first.isfinite().any()):
            metrics[PREDICTED.name] = self.first
        return Scores(metrics, units=self.clients, details=self.rows)


class Participation(Attack):
    """Rank of the participation in sums: for how many rounds they hide each client, before any update is read.

    Row t of the matrix P says who took part in the sum of a round. A statistic that adds up over clients (numbers of
    examples of a class, of words, of records) is a solution of linear equations with the coefficients P. It is
    determined for a client as soon as its unit vector is in the row space of P, and for all clients if the rank is
    their number. Clients that always take part together are never separated: with batches of b clients the rank is at
    most the number of batches. Errors of the sums and noise make it take longer; bounds (no negative number of
    examples) less long.

    Threat model: passive server that knows who took part, because it addressed them; no update is read. Names that
    change with every round hide it.

    References:
        [So23].

    Example:
        >>> import torch
        >>> from fedleak.attacks.sums_over_rounds import Participation
        >>> from fedleak.attacks.sums_over_rounds.toy import toy
        >>> view, truth = toy()
        >>> estimate = Participation()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["predicted-rounds-to-reveal"].mean()), 2)
        10.4
    """

    name = "participation"
    family = "sums-over-rounds"
    exact = True
    estimates: ClassVar[type[Estimate]] = ParticipationEstimate
    cost = "milliseconds per round"
    threat_model: ClassVar[ThreatModel] = ThreatModel(
        sees="who took part in each sum, and no update", knows="nothing", needs=("participants",)
    )

    def run(self, view: History, *, generator: torch.Generator) -> ParticipationEstimate:
        participants = Participants.of(view)
        assert view.participants is not None
        is_sum = (view.participants >= 0).any(1)
        weights = []
        for number in torch.unique(view.sent_in).tolist():
            # A sum is recorded once for each of its clients.
            groups = torch.unique(view.participants[is_sum & (view.sent_in == number)], dim=0)
            taking = participants.matrix(groups)
            weights.append(taking / taking.sum(1, keepdim=True))
        # Standard deviation of a client's statistic given the sums, over that before them.
        remaining = deviations_after(weights, USUAL) / USUAL.spread**0.5
        first = first_revealed(remaining >= _DETERMINED)
        return ParticipationEstimate(clients=participants.clients, first=first, rows=_rows(weights, first))


def _rows(weights: list[Tensor], first: Tensor) -> tuple[Detail, ...]:
    clients = weights[0].shape[1]
    sums = sum(len(round_weights) for round_weights in weights)
    determined = first[first.isfinite()]
    earliest: int | None = None
    when = ""
    if len(determined):
        earliest = int(determined.min())
        when = f", the first of them after {earliest} rounds"
    # In fixed batches as large as the first sum, each batch is one independent row at most.
    size = int((weights[0][0] > 0).sum())
    batches = max(clients // size, 1)
    return (
        {
            "what": "participation",
            "clients": clients,
            "rounds": len(weights),
            "sums": sums,
            "rank": rank(weights),
            "determined": len(determined),
            "first after": earliest,
            "text": f"Additive statistics of {len(determined)} of {clients} clients follow from exact sums{when}.",
        },
        {
            "what": "batched participation",
            "clients": clients,
            "rounds": len(weights),
            "sums": sums,
            "rank": min(batches, sums),
            "determined": 0 if size > 1 else clients,
            "first after": None,
            "text": f"If the same {size} clients always took part together, the rank would be {min(batches, sums)} at"
            " most, and sums would separate no client.",
        },
    )
