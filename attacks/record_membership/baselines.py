"""Baselines of record membership: chance, and the global model without an update."""

import torch

from fedleak.attacks.record_membership.estimates import RecordMembershipEstimate
from fedleak.attacks.record_membership.pool import KNOWS, NEEDS, PoolAttack, ServerPool, membership, recorded_type
from fedleak.client.record_losses import record_losses
from fedleak.core.history import History
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import CANDIDATE_LABELS

POOL = NEEDS[1:3]


class RandomMember(PoolAttack):
    """Random scores.

    Threat model: none; the chance level of membership.

    References:
        This project.

    Example:
        >>> import torch
        >>> from fedleak.attacks.record_membership import RandomMember
        >>> from fedleak.attacks.record_membership.toy import toy
        >>> view, truth = toy()
        >>> estimate = RandomMember()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        0.54
    """

    name = "random-member"
    baseline = True
    threat_model = ThreatModel(sees="no update", knows="a pool of records", needs=POOL)

    def run(self, view: History, *, generator: torch.Generator) -> RecordMembershipEstimate:
        senders = torch.unique(view.pseudonyms)
        count = len(view.auxiliary[CANDIDATE_LABELS])
        return RecordMembershipEstimate(
            senders=senders,
            scores=torch.rand(len(senders), count, generator=generator, dtype=torch.float64),
            predicted=torch.full((len(senders),), torch.nan),
            duplicates=torch.zeros(count, dtype=torch.bool),
        )


class SentModelLoss(PoolAttack):
    """Loss of a candidate under the global model that was sent in the last round; lower is a member of somebody.

    It reads no update. The model has learned from all clients' updates of earlier rounds, so after the first round it
    knows members from outsiders a little, but not one client from another.

    Threat model: one that sees only the global model, as every client does.

    References:
        This project; [Yeom18], adversary 1, on the global model.

    Example:
        >>> import torch
        >>> from fedleak.attacks.record_membership import SentModelLoss
        >>> from fedleak.attacks.record_membership.toy import toy
        >>> view, truth = toy()
        >>> estimate = SentModelLoss()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        0.59
    """

    name = "sent-model-loss"
    baseline = True
    is_prior = True
    threat_model = ThreatModel(sees="no update", knows=f"the global model; {KNOWS}", needs=NEEDS)

    def run(self, view: History, *, generator: torch.Generator) -> RecordMembershipEstimate:
        # The model that was sent in the last round is the same for all clients.
        last = next(iter(view.each_part((view.sent_in == view.sent_in.max()).nonzero().flatten())))
        pool = ServerPool.of(view).in_type(recorded_type(last))
        sent_model = {name: parameter[None] for name, parameter in last.model.items()}
        sent_loss = record_losses(pool.learner, sent_model, pool.records, pool.labels)[0]
        senders = torch.unique(view.pseudonyms)
        return membership(senders, -sent_loss.expand(len(senders), -1), view)
