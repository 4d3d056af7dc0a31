"""Source inference: which client holds a record; and its baseline, chance."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from attacks.estimates import Estimate
from attacks.record_membership.baselines import POOL
from attacks.record_membership.candidate_fit import JointFitAttack
from attacks.record_membership.pool import PoolAttack, averaged, statistics
from attacks.source.estimates import SourceEstimate
from protocol.history import History
from protocol.threat_model import ThreatModel
from protocol.view import CANDIDATE_LABELS


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
