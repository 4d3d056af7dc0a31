"""Marked documents: their feature is theirs alone, an update tells who trained on them, and noise hides it."""

import math

import pytest
import torch
from scipy.stats import norm

from attacks.estimates import EstimateError, MembershipEstimate
from attacks.manipulation.direct import MarkedDocument, marked_feature
from attacks.membership.retrieval import RetrievalFingerprint, log_likelihood_ratio
from attacks.metrics import auc_per_victim, wins_over_negatives
from defenses.local_dp import LocalDP
from experiments.retrieval import plant, unique_document
from protocol.view import ServerView, ViewError
from tests.modules.test_fpdgd import ranker, source


def attacked(hidden: int = 0, epsilon: float = math.inf, *, roll: int = 0) -> tuple[MembershipEstimate, torch.Tensor]:
    """Clients of whom half hold a marked document, and what is told of them; `roll`: of each the next one's update."""
    data = source()
    defenses = [LocalDP(clip=0.25, epsilon=epsilon, delta=1e-8)] if math.isfinite(epsilon) else []
    module = ranker(data, hidden=hidden, defenses=defenses)
    model, generator = module.public_parameters(), torch.Generator().manual_seed(0)
    cohort = module.interact(data.cohort(0), model)
    document = unique_document(data)
    held = plant(cohort, document, generator)
    lists = cohort.examples
    mark = MarkedDocument(document=document)
    lists["features"] = mark.features(model, lists["features"], lists["shown"], generator=generator)
    marked = lists["features"][..., marked_feature(model)] != 0
    assert torch.equal(marked.flatten(1).sum(1), held.long())
    update, _ = module.client_updates(cohort, model)
    view = ServerView(
        round=0,
        pseudonyms=cohort.clients,
        example_counts=cohort.counts,
        deltas={name: value.roll(roll, 0) for name, value in update.deltas.items()},
        model=model,
        releases=tuple(r for d in defenses for r in d.releases(tuple(model))),
    )
    estimate = RetrievalFingerprint()(view, generator=generator)
    assert isinstance(estimate, MembershipEstimate)
    return estimate, held


@pytest.mark.parametrize("hidden", [0, 3])
def test_without_noise_an_entry_tells(hidden: int) -> None:
    estimate, held = attacked(hidden)
    assert not bool(estimate.decisions[~held].any())
    assert float(estimate.decisions[held].double().mean()) > 0.8
    if not hidden:
        assert torch.equal(estimate.decisions, held)


def test_weak_noise_is_seen_through_and_strong_noise_is_not() -> None:
    estimate, held = attacked(epsilon=500)
    assert float((estimate.decisions == held).double().mean()) > 0.8
    estimate, held = attacked(epsilon=1)
    assert not bool(estimate.decisions.all())
    assert float(estimate.scores.std()) < 0.1  # the ratio hardly leaves one


def test_another_clients_update_tells_nothing() -> None:
    estimate, held = attacked(roll=1)
    assert torch.equal(estimate.decisions, held.roll(1))
    assert 0.2 < float((estimate.decisions == held).double().mean()) < 0.8


def test_the_ratio_is_that_of_two_gaussians() -> None:
    entries = torch.tensor([[0.3, -0.2], [0.0, 0.1]], dtype=torch.float64)
    both, alone = (norm(scale=scale).logpdf(entries.numpy()).sum(1) for scale in (math.hypot(0.1, 0.5), 0.1))
    found = log_likelihood_ratio(entries, noise=0.1, spread=0.5)
    assert found.tolist() == pytest.approx((both - alone).tolist())


def test_wins_average_to_the_auc() -> None:
    scores = torch.tensor([0.1, 0.5, 0.5, 0.9, 0.2])
    labels = torch.tensor([False, True, False, True, False])
    whole = auc_per_victim(scores[None], labels[None].float(), torch.ones(1, 5, dtype=torch.bool))
    assert wins_over_negatives(scores, labels).tolist() == pytest.approx([2.5 / 3, 1.0])
    assert float(wins_over_negatives(scores, labels).mean()) == pytest.approx(float(whole))


def test_the_mark_is_where_scores_hardly_change() -> None:
    assert marked_feature({"ranker.weight": torch.tensor([0.5, -0.01, 0.2])}) == 1
    hidden = torch.tensor([[-1.0, 1.0, 1.0], [-1.0, 1.0, 0.1]])
    assert marked_feature({"hidden.weight": hidden, "output.weight": torch.tensor([1.0, -1.0])}) == 1


def test_impossible_things_are_refused() -> None:
    with pytest.raises(ValueError, match="other than 0"):
        MarkedDocument(document=torch.ones(3), value=0)
    view = ServerView(
        round=0,
        pseudonyms=torch.arange(2),
        example_counts=torch.ones(2),
        deltas={"output.weight": torch.zeros(2, 3)},
        model={},
    )
    with pytest.raises(ViewError, match=r"hidden\.weight"):
        RetrievalFingerprint()(view, generator=torch.Generator())
    wrong = MembershipEstimate(scores=torch.zeros(3), decisions=torch.zeros(3, dtype=torch.bool))
    with pytest.raises(EstimateError, match="shape"):
        wrong.check(view)
