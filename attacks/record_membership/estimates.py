"""Estimate of record membership: which records of a pool a client holds."""

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.attacks.applicability import without_records
from fedleak.core.answers import Choices
from fedleak.core.errors import ViewError
from fedleak.core.estimates import PLACE, ROC_GRID, Candidates, Detail, Estimate, Scores, check_tensor
from fedleak.core.metric_table import SHARE, Metric
from fedleak.core.scoring import auc_per_victim, clopper_pearson, rates_at, roc_per_victim
from fedleak.core.view import CANDIDATE_LABELS, View

RATES = (0.01, 0.001)
"""False-positive rates at which true-positive rates are reported."""
_ASKS = "did the client train on this record?"


@dataclass(frozen=True, kw_only=True)
class RecordMembershipEstimate(Estimate):
    """Which records of a pool each client trained on.

    Attributes:
        senders: ``(U,)`` pseudonyms of the clients.
        scores: ``(U, M)``, higher means more likely.
        predicted: ``(U,)`` AUC that the attack expects of itself, NaN if it expects none.
        duplicates: ``(M,)`` bool, records of which the pool has another copy, so that the two cannot be distinguished.
    """

    inferred = "which of the records in its pool the client trained on"
    truth = ("member", "clients")
    metrics: ClassVar[tuple[str | Metric, ...]] = (
        "auc",
        Metric(
            "class-auc",
            "Class AUC compares members with the other candidates of their class, so that knowing a client's classes"
            " gives 0.5.",
            guessing=0.5,
            span=(0.0, 1.0),
        ),
        *(
            Metric(
                f"tpr@{rate:g}",
                f"TPR@{rate:g} is the share of members found by the one threshold for all clients that at most {rate:g}"
                " of the others pass.",
                span=SHARE,
            )
            for rate in RATES
        ),
        *(
            Metric(f"fpr@{rate:g}", f"FPR@{rate:g} is the share of the others that do pass it.", leak=False, span=SHARE)
            for rate in RATES
        ),
        Metric(
            "no-false-alarm",
            "No false alarm is the share of members that score above every other candidate.",
            span=SHARE,
        ),
        Metric(
            "predicted-auc",
            "Predicted AUC is the AUC that the attack expects of itself under its assumptions, without the truth.",
            leak=False,
            predicts="auc",
            span=SHARE,
        ),
    )
    senders: Tensor
    scores: Tensor
    predicted: Tensor
    duplicates: Tensor

    @classmethod
    def inapplicable(cls, view: View, truth: Collection[str]) -> str | None:
        return without_records(view, truth)

    def check(self, view: View) -> None:
        shape = (len(self.senders), len(view.auxiliary[CANDIDATE_LABELS]))
        check_tensor("scores", self.scores, shape)
        check_tensor("predicted", self.predicted, shape[:1], finite=False)
        check_tensor("duplicates", self.duplicates, shape[1:], dtype=torch.bool)

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """AUC of each client over the pool, and rates at one threshold for the candidates of all clients.

        Every candidate that a client does not hold counts as a non-member of it, also a member of another client. The
        table of details has the pooled rates with intervals of Clopper and Pearson.
        """
        member, clients = truth_of_senders(self.senders, view, truth, self.scores.shape[1])
        return self._scored(member, clients, view.auxiliary[CANDIDATE_LABELS])

    def _scored(self, member: Tensor, clients: Tensor, classes: Tensor) -> Scores:
        everything = torch.ones_like(member)
        auc = auc_per_victim(self.scores, member, everything)
        metrics = {"auc": auc, "class-auc": class_auc(self.scores, member, classes)}
        details: list[Detail] = []
        for rate in (*RATES, 0.0):
            found, alarms = self._rates(member, rate)
            if rate:
                metrics |= {f"tpr@{rate:g}": found, f"fpr@{rate:g}": alarms}
                details.append(_pooled(rate, found, alarms, member))
            else:
                metrics["no-false-alarm"] = found
        if bool(self.predicted.isfinite().any()):
            metrics["predicted-auc"] = self.predicted.double()
        return Scores(
            metrics,
            everything.sum(1),
            member.sum(1),
            units=clients,
            roc=roc_per_victim(self.scores, member, everything, ROC_GRID).masked_fill(auc.isnan()[:, None], torch.nan),
            candidates=Candidates(
                _ASKS, self.scores.flatten(), member.flatten(), clients.repeat_interleave(member.shape[1])
            ),
            details=[*details, *self._most_exposed(member, clients)],
            answers=Choices(
                scores=self.scores.double().flatten(),
                labels=member.flatten(),
                places=torch.arange(len(member)).repeat_interleave(member.shape[1]),
                people=clients.repeat_interleave(member.shape[1]),
                counted=classes.repeat(len(member)),
                alike=True,
                rescored=lambda odds: dataclasses.replace(
                    self, scores=odds.reshape(member.shape), predicted=torch.full_like(self.predicted, torch.nan)
                )._scored(member, clients, classes),
            ),
        )

    def _rates(self, member: Tensor, allowed: float) -> tuple[Tensor, Tensor]:
        """``(U,)`` true- and false-positive rates of each client at the threshold for all."""
        accepted = self.scores >= rates_at(self.scores.flatten(), member.flatten(), allowed).threshold
        found, alarms = ((accepted & kind).sum(1) / kind.sum(1).double() for kind in (member, ~member))
        return found, alarms

    def _most_exposed(self, member: Tensor, clients: Tensor, count: int = 10) -> list[Detail]:
        """The members with the highest scores, by their places in the pool."""
        scores = self.scores.double().masked_fill(~member, -torch.inf).flatten()
        best = scores.argsort(descending=True, stable=True)[: min(count, int(member.sum()))]
        others = self.scores[~member].double()
        return [
            {
                "what": "most exposed record",
                "client": int(clients[place // member.shape[1]]),
                PLACE: int(place % member.shape[1]),
                "score": float(scores[place]),
                "others above": int((others >= scores[place]).sum()),
                "has a copy in the pool": bool(self.duplicates[place % member.shape[1]]),
            }
            for place in best
        ]


def truth_of_senders(
    senders: Tensor, view: View, truth: Mapping[str, Tensor], candidates: int
) -> tuple[Tensor, Tensor]:
    """``(U, M)`` whether each sender holds each candidate, and ``(U,)`` the client numbers.

    Raises:
        ViewError: the ground truth is about another number of candidates.
    """
    member = truth["member"]
    if member.dim() != 2 or member.shape[1] != candidates:
        raise ViewError(
            f"expected `client/member` (C, {candidates}) in the ground truth, got {tuple(member.shape)}. Record"
            " candidates and ground truth in one training"
        )
    first = (view.pseudonyms == senders[:, None]).int().argmax(1)
    return member[first] > 0.5, truth["clients"][first]


def class_auc(scores: Tensor, member: Tensor, labels: Tensor) -> Tensor:
    """``(U,)`` AUC of members over non-members of the same class, averaged over the members.

    Of ``scores (U, M)``, ``member (U, M)`` bool and classes ``labels (M,)``.
    """
    total, weight = (torch.zeros(len(scores), dtype=torch.float64) for _ in range(2))
    for number in torch.unique(labels).tolist():
        inside = (labels == number).expand(member.shape)
        auc, held = auc_per_victim(scores, member, inside), (member & inside).sum(1)
        total += torch.where(auc.isnan(), 0, auc * held)
        weight += torch.where(auc.isnan(), 0, held)
    return total / weight.masked_fill(weight == 0, torch.nan)


def _pooled(rate: float, found: Tensor, alarms: Tensor, member: Tensor) -> Detail:
    row: dict[str, str | int | float | bool | None] = {"what": "rates at one threshold", "allowed FPR": rate}
    for name, share, kind in (("TPR", found, member), ("FPR", alarms, ~member)):
        asked = kind.sum(1)
        hits = int((share.nan_to_num() * asked).round().sum())
        low, high = clopper_pearson(hits, int(asked.sum()))
        row |= {name: hits / int(asked.sum()), f"{name} low": low, f"{name} high": high}
        row[f"{name} of"] = int(asked.sum())
    return row
