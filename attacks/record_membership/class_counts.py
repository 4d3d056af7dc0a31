"""Record membership by class: how much of a candidate's class is in an update."""

import torch

from fedleak.attacks.record_membership.estimates import RecordMembershipEstimate
from fedleak.attacks.record_membership.pool import (
    KNOWS,
    NEEDS,
    PoolAttack,
    ServerPool,
    averaged,
    membership,
    statistics,
)
from fedleak.core.history import History
from fedleak.core.threat_model import ThreatModel


class ClassCounts(PoolAttack):
    """Estimated share of a candidate's class in the update: all candidates of a class score alike.

    It reads the update for classes only: what an attack finds without a difference between two records of a class.

    Threat model: passive server that sees each client's update.

    References:
        This project; the shares are those of least squares on the mean gradient of each class's candidates.

    Example:
        >>> import torch
        >>> from fedleak.attacks.record_membership import ClassCounts
        >>> from fedleak.attacks.record_membership.toy import toy
        >>> view, truth = toy()
        >>> estimate = ClassCounts()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        0.61
    """

    name = "class-counts"
    threat_model = ThreatModel(sees="each client's update, for its classes only", knows=KNOWS, needs=NEEDS)

    def run(self, view: History, *, generator: torch.Generator) -> RecordMembershipEstimate:
        labels = ServerPool.of(view).labels
        rounds = [(of_round.senders, of_round.class_shares[:, labels]) for of_round in statistics(view)]
        senders, scores = averaged(rounds)
        return membership(senders, scores, view)
