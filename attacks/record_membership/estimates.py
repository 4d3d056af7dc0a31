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
from fedleak.core.metric import SHARE, Metric
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
        for rate in RATES:
            tpr, fpr = self._rates(member, rate)
            metrics |= {f"tpr@{rate:g}": tpr, f"fpr@{rate:g}": fpr}
            details.append(_pooled(rate, tpr, fpr, member))
        metrics["no-false-alarm"], _ = self._rates(member, 0.0)
        if bool(self.predicted.isfinite().any()):
            metrics["predicted-auc"] = self.predicted.double()
        # A client without members, or without others, has no curve.
        roc = roc_per_victim(self.scores, member, everything, ROC_GRID)
        roc = roc.masked_fill(auc.isnan()[:, None], torch.nan)
        client_of_pair = clients.repeat_interleave(member.shape[1])
        return Scores(
            metrics,
            everything.sum(1),
            member.sum(1),
            units=clients,
            roc=roc,
            candidates=Candidates(_ASKS, self.scores.flatten(), member.flatten(), client_of_pair),
            details=[*details, *self._most_exposed(member, clients)],
            answers=self._answers(member, clients, classes),
        )

    def _answers(self, member: Tensor, clients: Tensor, classes: Tensor) -> Choices:
        """A pair of a client and a candidate is one answer: flattened client after client."""

        def rescored(odds: Tensor) -> Scores:
            """Scores with log odds in the place of the attack's scores, of which the attack predicted nothing."""
            estimate = dataclasses.replace(
                self,
                scores=odds.reshape(member.shape),
                predicted=torch.full_like(self.predicted, torch.nan),
            )
            return estimate._scored(member, clients, classes)

        return Choices(
            scores=self.scores.double().flatten(),
            labels=member.flatten(),
            places=torch.arange(len(member)).repeat_interleave(member.shape[1]),
            people=clients.repeat_interleave(member.shape[1]),
            counted=classes.repeat(len(member)),
            alike=True,
            rescored=rescored,
        )

    def _rates(self, member: Tensor, allowed: float) -> tuple[Tensor, Tensor]:
        """``(U,)`` true- and false-positive rates of each client at the threshold for all."""
        accepted = self.scores >= rates_at(self.scores.flatten(), member.flatten(), allowed).threshold
        tpr = (accepted & member).sum(1) / member.sum(1).double()
        fpr = (accepted & ~member).sum(1) / (~member).sum(1).double()
        return tpr, fpr

    def _most_exposed(self, member: Tensor, clients: Tensor, count: int = 10) -> list[Detail]:
        """The members with the highest scores, by their places in the pool."""
        # Pairs of a client and a candidate, client after client.
        scores = self.scores.double().masked_fill(~member, -torch.inf).flatten()
        best_pairs = scores.argsort(descending=True, stable=True)[: min(count, int(member.sum()))]
        scores_of_non_members = self.scores[~member].double()
        details: list[Detail] = []
        for pair in best_pairs:
            client, record = divmod(int(pair), member.shape[1])
            details.append(
                {
                    "what": "most exposed record",
                    "client": int(clients[client]),
                    PLACE: record,
                    "score": float(scores[pair]),
                    "others above": int((scores_of_non_members >= scores[pair]).sum()),
                    "has a copy in the pool": bool(self.duplicates[record]),
                }
            )
        return details


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
    # The truth of a sender is that of its first message.
    first_message = (view.pseudonyms == senders[:, None]).int().argmax(1)
    return member[first_message] > 0.5, truth["clients"][first_message]


def class_auc(scores: Tensor, member: Tensor, labels: Tensor) -> Tensor:
    """``(U,)`` AUC of members over non-members of the same class, averaged over the members.

    Of ``scores (U, M)``, ``member (U, M)`` bool and classes ``labels (M,)``.
    """
    total = torch.zeros(len(scores), dtype=torch.float64)
    weight = torch.zeros(len(scores), dtype=torch.float64)
    for label in torch.unique(labels).tolist():
        is_of_class = (labels == label).expand(member.shape)
        auc = auc_per_victim(scores, member, is_of_class)
        members = (member & is_of_class).sum(1)
        # A class without members, or without others, has no AUC and counts nothing.
        total += torch.where(auc.isnan(), 0, auc * members)
        weight += torch.where(auc.isnan(), 0, members)
    return total / weight.masked_fill(weight == 0, torch.nan)


def _pooled(allowed: float, tpr: Tensor, fpr: Tensor, member: Tensor) -> Detail:
    """Rates over the candidates of all clients together, from each client's rates, with intervals."""
    row: dict[str, str | int | float | bool | None] = {"what": "rates at one threshold", "allowed FPR": allowed}
    for name, rate, candidates in (("TPR", tpr, member), ("FPR", fpr, ~member)):
        candidates_of_client = candidates.sum(1)
        total = int(candidates_of_client.sum())
        accepted = int((rate.nan_to_num() * candidates_of_client).round().sum())
        low, high = clopper_pearson(accepted, total)
        row |= {name: accepted / total, f"{name} low": low, f"{name} high": high}
        row[f"{name} of"] = total
    return row
