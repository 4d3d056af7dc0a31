"""Estimate of the source of records: which client holds each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attacks.estimates import Detail, Estimate, Scores, check_tensor
from attacks.record_membership.estimates import truth_of_senders
from attacks.scoring import top_share
from protocol.errors import ViewError
from protocol.metric_table import Metric
from protocol.view import CANDIDATE_LABELS, View


@dataclass(frozen=True, kw_only=True)
class SourceEstimate(Estimate):
    """Which client holds each record of a pool.

    Attributes:
        senders: ``(U,)`` pseudonyms of the clients.
        scores: ``(U, M)``, higher means more likely the holder.
    """

    inferred = "which client holds a record"
    truth = ("member", "clients")
    metrics: ClassVar[tuple[str | Metric, ...]] = (
        Metric(
            "source",
            "Source is the share of a client's records whose holder is named, or its chance in a tie.",
            judged=True,
            binary=True,
            span=(0.0, 1.0),
        ),
    )
    senders: Tensor
    scores: Tensor

    def check(self, view: View) -> None:
        check_tensor("scores", self.scores, (len(self.senders), len(view.auxiliary[CANDIDATE_LABELS])))

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """The share of each client's records whose highest score is that of the holder.

        A record counts if one client of the round holds it. The records of a client depend on one another, as one
        update and one global model decide them, so the clients are the units, and the table of details has the records.

        Raises:
            ViewError: no record has one holder.
        """
        member, clients = truth_of_senders(self.senders, view, truth, self.scores.shape[1])
        places = (member.sum(0) == 1).nonzero().flatten()
        if not len(places):
            raise ViewError("expected candidates that one of the clients holds, got none")
        holder = member[:, places].int().argmax(0)
        right = top_share(self.scores[:, places].T, holder, 1)
        records = holder.bincount(minlength=len(member))
        asked = records > 0
        share = (torch.zeros(len(member), dtype=torch.float64).index_add_(0, holder, right) / records)[asked]
        row: Detail = {
            "what": "records that one client holds",
            "records": len(places),
            "clients": int(asked.sum()),
            "share whose holder is named": float(right.mean()),
        }
        return Scores(
            {"source": share},
            torch.full_like(records[asked], len(places)),
            records[asked],
            units=clients[asked],
            details=[row],
        )
