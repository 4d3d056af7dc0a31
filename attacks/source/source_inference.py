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
from fedleak.core.metric import Metric
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
        member, clients = truth_of_senders(self.senders, view, truth, self.scores.shape[1])
        return self._scored(member, clients)

    def _scored(self, member: Tensor, clients: Tensor) -> Scores:
        records = (member.sum(0) == 1).nonzero().flatten()
        if not len(records):
            raise ViewError("expected candidates that one of the clients holds, got none")
        holder = member[:, records].int().argmax(0)
        is_named = top_share(self.scores[:, records].T, holder, 1)
        # Clients that hold no such record have no share.
        records_of_client = holder.bincount(minlength=len(member))
        is_holder = records_of_client > 0
        named = torch.zeros(len(member), dtype=torch.float64).index_add_(0, holder, is_named)
        share = (named / records_of_client)[is_holder]
        row: Detail = {
            "what": "records that one client holds",
            "records": len(records),
            "clients": int(is_holder.sum()),
            "share whose holder is named": float(is_named.mean()),
        }

        # The row of these scores for which a record counts is that of its holder.
        row_of_record = (is_holder.cumsum(0) - 1)[holder]
        return Scores(
            {SOURCE.name: share},
            torch.full_like(records_of_client[is_holder], len(records)),
            records_of_client[is_holder],
            units=clients[is_holder],
            details=[row],
            answers=self._answers(member, clients, records, row_of_record),
        )

    def _answers(self, member: Tensor, clients: Tensor, records: Tensor, row_of_record: Tensor) -> Choices:
        """A question is a record, of ``records (N,)``, with an answer for each client."""
        holder = member[:, records].int().argmax(0)

        def rescored(odds: Tensor) -> Scores:
            """Scores with log odds in the place of the attack's scores of these records."""
            odds_of_clients = odds.reshape(len(records), -1).T
            scores = torch.zeros(member.shape, dtype=torch.float64).index_copy(1, records, odds_of_clients)
            return dataclasses.replace(self, scores=scores)._scored(member, clients)

        return Choices(
            scores=self.scores[:, records].T.double().flatten(),
            labels=member[:, records].T.flatten(),
            places=row_of_record.repeat_interleave(len(member)),
            people=clients[holder].repeat_interleave(len(member)),
            questions=torch.arange(len(records)).repeat_interleave(len(member)),
            rescored=rescored,
        )


class SmallestLoss(PoolAttack):
    """Client whose model has the smallest loss on the record, in its last round.

    Threat model: passive server that sees each client's update.

    References:
        [Hu23], section 4 and the published code.

    Example:
        >>> import torch
        >>> from fedleak.attacks.source import SmallestLoss
        >>> from fedleak.attacks.source.toy import toy
        >>> view, truth = toy()
        >>> estimate = SmallestLoss()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["source"].mean()), 3)
        0.425
    """

    name = "smallest-loss"
    family = "source"
    estimates: ClassVar[type[Estimate]] = SourceEstimate
    references = ("Hu23, smallest prediction loss",)

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

    Example:
        >>> import torch
        >>> from fedleak.attacks.source import CandidateSource
        >>> from fedleak.attacks.source.toy import toy
        >>> view, truth = toy()
        >>> estimate = CandidateSource()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["source"].mean()), 2)
        1.0
    """

    name: ClassVar[str] = "candidate-source"
    with_prior = "likelihood"
    family: ClassVar[str] = "source"
    estimates: ClassVar[type[Estimate]] = SourceEstimate

    def run(self, view: History, *, generator: torch.Generator) -> SourceEstimate:
        fits = self.fits(view, generator=generator)
        return SourceEstimate(
            senders=torch.tensor(list(fits)),
            scores=torch.stack([client_fit.log_odds for client_fit in fits.values()]),
        )


class RandomSource(PoolAttack):
    """Random client for each record.

    Threat model: none; the chance level of source inference.

    References:
        This project.

    Example:
        >>> import torch
        >>> from fedleak.attacks.source import RandomSource
        >>> from fedleak.attacks.source.toy import toy
        >>> view, truth = toy()
        >>> estimate = RandomSource()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["source"].mean()), 3)
        0.225
    """

    name = "random-source"
    family = "source"
    baseline = True
    estimates: ClassVar[type[Estimate]] = SourceEstimate
    threat_model = ThreatModel(sees="no update", knows="a pool of records", needs=POOL)

    def run(self, view: History, *, generator: torch.Generator) -> SourceEstimate:
        senders = torch.unique(view.pseudonyms)
        count = len(view.auxiliary[CANDIDATE_LABELS])
        scores = torch.rand(len(senders), count, generator=generator, dtype=torch.float64)
        return SourceEstimate(senders=senders, scores=scores)
