"""Source inference: which client holds a record; the estimate, the attacks, and their baseline, chance."""

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.attacks.applicability import without_records
from fedleak.attacks.record_membership.baselines import POOL
from fedleak.attacks.record_membership.candidate_fit import JointFitAttack
from fedleak.attacks.record_membership.estimates import truth_of_senders
from fedleak.attacks.record_membership.pool import PoolAttack, averaged, statistics
from fedleak.core.answers import Choices
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Detail, Estimate, Scores, check_tensor
from fedleak.core.history import History
from fedleak.core.metric_table import Metric
from fedleak.core.scoring import top_share
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import CANDIDATE_LABELS, View

SOURCE = Metric(
    "source",
    "Source is the share of a client's records whose holder is named, or its chance in a tie.",
    judged=True,
    binary=True,
    span=(0.0, 1.0),
    words="names the right client for {} of 100 records",
)


@dataclass(frozen=True, kw_only=True)
class SourceEstimate(Estimate):
    """Which client holds each record of a pool.

    Attributes:
        senders: ``(U,)`` pseudonyms of the clients.
        scores: ``(U, M)``, higher means more likely the holder.
    """

    inferred = "which client holds a record"
    truth = ("member", "clients")
    metrics: ClassVar[tuple[str | Metric, ...]] = (SOURCE,)
    senders: Tensor
    scores: Tensor

    @classmethod
    def inapplicable(cls, view: View, truth: Collection[str]) -> str | None:
        return without_records(view, truth)

    def check(self, view: View) -> None:
        check_tensor("scores", self.scores, (len(self.senders), len(view.auxiliary[CANDIDATE_LABELS])))

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """The share of each client's records whose highest score is that of the holder.

        A record counts if one client of the round holds it. The records of a client depend on one another, as one
        update and one global model decide them, so the clients are the units, and the table of details has the records.

        Raises:
            ViewError: no record has one holder.
        """
        return self._scored(*truth_of_senders(self.senders, view, truth, self.scores.shape[1]))

    def _scored(self, member: Tensor, clients: Tensor) -> Scores:
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
            {SOURCE.name: share},
            torch.full_like(records[asked], len(places)),
            records[asked],
            units=clients[asked],
            details=[row],
            answers=Choices(
                scores=self.scores[:, places].T.double().flatten(),
                labels=member[:, places].T.flatten(),
                places=(asked.cumsum(0) - 1)[holder].repeat_interleave(len(member)),
                people=clients[holder].repeat_interleave(len(member)),
                questions=torch.arange(len(places)).repeat_interleave(len(member)),
                rescored=lambda odds: dataclasses.replace(
                    self,
                    scores=torch.zeros(member.shape, dtype=torch.float64).index_copy(
                        1, places, odds.reshape(len(places), -1).T
                    ),
                )._scored(member, clients),
            ),
        )


class SmallestLoss(PoolAttack):
    """Client whose model has the smallest loss on the record, in its last round.

    Threat model: passive server that sees each client's update.

    References:
        Hu, Zhang, Salcic, Sun, Choo and Dobbie, "Source Inference Attacks: Beyond Membership Inference Attacks in
        Federated Learning", IEEE TDSC 2023, arXiv:2310.06222, section 4 and the published code.
    """

    name = "smallest-loss"
    family = "source"
    estimates: ClassVar[type[Estimate]] = SourceEstimate
    references = ("Source Inference Attacks, smallest prediction loss",)

    def run(self, view: History, *, generator: torch.Generator) -> SourceEstimate:
        last = statistics(view)[-1]
        senders, scores = averaged([(last.senders, -last.loss)])
        return SourceEstimate(senders=senders, scores=scores)


@dataclass(frozen=True)
class CandidateSource(JointFitAttack):
    """Client with the highest posterior odds of a joint fit of its update by all candidates.

    The fit is that of `candidate-fit`; a record has one holder, so the clients' posterior odds are compared.

    Threat model: passive server that sees each client's update.

    The arguments are those of `JointFitAttack`.

    References:
        This project.
    """

    name: ClassVar[str] = "candidate-source"
    with_prior = "likelihood"
    family: ClassVar[str] = "source"
    estimates: ClassVar[type[Estimate]] = SourceEstimate

    def run(self, view: History, *, generator: torch.Generator) -> SourceEstimate:
        found = self.fits(view, generator=generator)
        return SourceEstimate(
            senders=torch.tensor(list(found)), scores=torch.stack([one.log_odds for one in found.values()])
        )


class RandomSource(PoolAttack):
    """Random client for each record.

    Threat model: none; the chance level of source inference.

    References:
        This project.
    """

    name = "random-source"
    family = "source"
    baseline = True
    estimates: ClassVar[type[Estimate]] = SourceEstimate
    threat_model = ThreatModel(sees="no update", knows="a pool of records", needs=POOL)

    def run(self, view: History, *, generator: torch.Generator) -> SourceEstimate:
        senders, count = torch.unique(view.pseudonyms), len(view.auxiliary[CANDIDATE_LABELS])
        return SourceEstimate(
            senders=senders, scores=torch.rand(len(senders), count, generator=generator, dtype=torch.float64)
        )
