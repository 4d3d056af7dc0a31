"""The mark of one document names the clients that retrieved it, by their own updates and by no others'."""

import dataclasses
import math

import pytest
import torch
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from fedleak.attacks.membership.retrieval import MembershipEstimate, RetrievalFingerprint, log_likelihood_ratio
from fedleak.core.errors import ViewError
from fedleak.core.estimates import EstimateError
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from tests.attacks.runs import plain_view, run, with_deltas
from tests.document_toys import VICTIMS, marked_view


def decided(view: RoundView) -> torch.Tensor:
    return run(RetrievalFingerprint(), view, MembershipEstimate).decisions


@pytest.mark.parametrize(("hidden", "noise"), [(0, 0.0), (3, 0.0), (0, 1e-3)])
def test_an_entry_names_who_holds_the_document(hidden: int, noise: float) -> None:
    view, held = marked_view(hidden, noise)
    assert torch.equal(decided(view), held)


def test_another_clients_update_says_who_the_other_is() -> None:
    view, held = marked_view()
    others = torch.randperm(VICTIMS, generator=torch.Generator().manual_seed(3))
    shuffled = with_deltas(view, lambda delta: delta[others])
    assert 0.25 < float((decided(shuffled) == held).double().mean()) < 0.75


def test_an_update_that_is_noise_says_nothing() -> None:
    view, _ = marked_view(noise=1e-3)
    noise = with_deltas(view, lambda delta: 1e-3 * torch.randn(delta.shape, generator=generator_for(1, "noise")))
    assert not bool(decided(noise).any())


def test_the_ratio_is_that_of_two_gaussians() -> None:
    entries = torch.tensor([[0.3, -0.2], [0.0, 0.1]], dtype=torch.float64)
    both, alone = (norm(scale=scale).logpdf(entries.numpy()).sum(1) for scale in (math.hypot(0.1, 0.5), 0.1))
    found = log_likelihood_ratio(entries, noise=0.1, spread=0.5)
    assert found.tolist() == pytest.approx((both - alone).tolist())


def test_noise_without_a_clip_and_another_layer_are_refused() -> None:
    view, _ = marked_view(noise=1e-3)
    unclipped = tuple(dataclasses.replace(release, clip=None) for release in view.releases)
    with pytest.raises(ViewError, match="clip"):
        decided(dataclasses.replace(view, releases=unclipped))
    with pytest.raises(ViewError, match="deltas"):
        decided(dataclasses.replace(view, deltas={"other": torch.zeros(VICTIMS, 2)}))


def test_an_estimate_of_another_shape_is_refused() -> None:
    wrong = MembershipEstimate(scores=torch.zeros(3), decisions=torch.zeros(3, dtype=torch.bool))
    with pytest.raises(EstimateError, match="shape"):
        wrong.check(marked_view()[0])


def test_members_are_scored_by_auc_and_rates() -> None:
    view = plain_view(8)
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
    view = plain_view(3)
    estimate = MembershipEstimate(scores=torch.zeros(3), decisions=torch.zeros(3, dtype=torch.bool))
    for member in (torch.ones(3), torch.zeros(3)):
        assert estimate.score(view, {"member": member}).metrics["auc"].isnan().all()
