"""Members are scored by AUC and rates."""

import torch
from sklearn.metrics import roc_auc_score

from attacks.membership.estimates import MembershipEstimate
from tests.toys import leaky_view


def test_members_are_scored_by_auc_and_rates() -> None:
    view, _ = leaky_view(8)
    member = torch.tensor([True, False, True, False, False, True, False, False])
    scores = torch.tensor([3.0, 1.0, 2.0, 2.0, 0.0, 5.0, 4.0, -1.0])
    estimate = MembershipEstimate(scores=scores, decisions=scores > 1.5)
    found = estimate.score(view, {"member": member.float()})
    auc, tpr, fpr = (found.metrics[name] for name in ("auc", "tpr", "fpr"))
    assert torch.isclose(auc.nanmean(), torch.tensor(roc_auc_score(member, scores), dtype=torch.float64))
    assert auc.isnan().tolist() == (~member).tolist()
    assert tpr[member].tolist() == [1.0, 1.0, 1.0]
    assert tpr[~member].isnan().all()
    assert float(fpr.nanmean()) == 2 / 5
    assert found.positives is not None
    assert found.positives.tolist() == member.long().tolist()


def test_without_both_kinds_there_is_no_auc() -> None:
    view, _ = leaky_view(3)
    estimate = MembershipEstimate(scores=torch.zeros(3), decisions=torch.zeros(3, dtype=torch.bool))
    for member in (torch.ones(3), torch.zeros(3)):
        assert estimate.score(view, {"member": member}).metrics["auc"].isnan().all()
