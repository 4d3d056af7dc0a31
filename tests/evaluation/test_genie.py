"""The genie against a formula and against attacks that know less."""

import dataclasses
import functools

import pytest
import torch

from fedleak.attacks.images.affine_inversion import AffineInversion
from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.attacks.recommendation.matched_filter import MatchedFilter
from fedleak.client.pointwise_descent import VoteAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.release import Release
from fedleak.core.scoring import auc_per_victim
from fedleak.core.seeding import generator_for
from fedleak.core.view import ITEM_EMBEDDING
from fedleak.defenses.base import Update
from fedleak.defenses.local_dp import LocalDP
from fedleak.evaluation.channel import Channel
from fedleak.evaluation.genie import genie_auc
from tests.attacks.images.votes import toy
from tests.toys import leaky_view


def test_two_updates_at_a_known_distance() -> None:
    """After one step of a linear ranker, exchanging the votes on two items moves the update by ``x_i - x_j``."""
    view, votes = toy(6, 8, 0, victims=5)
    name, (features, *_) = next(iter(view.deltas)), view.features  # type: ignore[misc]
    noise = 0.02
    release = Release(clip=1e6, noise_scale=noise, parameters=(name,))
    learner = VoteAlgorithm(full_batch_steps=1, learning_rate=0.1)
    noisy = dataclasses.replace(view, algorithm=learner, releases=(release,))
    votes[0] = 0  # a client without a pair
    found = genie_auc(noisy, votes, pairs=2000, generator=generator_for(0, "genie"))
    assert found[0].isnan()
    right = torch.special.ndtr(torch.cdist(features, features) * 0.1 / 6 / (2 * noise))
    for own, value in zip(votes[1:].bool(), found[1:], strict=True):
        if own.any() and not own.all():
            assert float(value) == pytest.approx(float(right[own][:, ~own].mean()), abs=0.01)
    without_noise = genie_auc(view, votes, pairs=4, generator=generator_for(0, "genie"))
    assert float(without_noise.nanmean()) == 1


@pytest.mark.parametrize("epsilon", [500, 100, 20])
def test_no_attack_on_votes_exceeds_it(epsilon: int) -> None:
    view, votes = toy(40, 60, 3, victims=60, epsilon=epsilon)
    estimate = AffineInversion()(view, generator=generator_for(0, "attack"))
    assert isinstance(estimate, InteractionEstimate)
    attacked = auc_per_victim(estimate.scores, votes, view.served_mask)
    genie = genie_auc(view, votes, pairs=40, generator=generator_for(0, "genie"))
    error = float(attacked.std()) / len(attacked) ** 0.5
    assert 0.5 < float(attacked.mean()) < float(genie.mean()) + 3 * error


@pytest.mark.integration
def test_a_clipped_recommender() -> None:
    """The genie simulates what the clients sent, and exceeds the matched filter."""
    view, labels = leaky_view(victims=8)
    users = torch.randn(8, 64, generator=generator_for(0, "other users"))
    defence = LocalDP(clip=0.05, epsilon=100, delta=1e-8)
    rows = {ITEM_EMBEDDING: view.served_items}
    generators = functools.cache(lambda client: generator_for(0, "defense", client))
    update = defence.protect(Update(dict(view.deltas), rows), generators)
    noisy = dataclasses.replace(view, deltas=update.deltas, releases=defence.releases((ITEM_EMBEDDING,)))
    assert Channel.of(noisy) == Channel(0.05, defence.noise_scale)
    genie = genie_auc(noisy, labels, users=users, pairs=4, generator=generator_for(0, "genie"))
    estimate = MatchedFilter(shadows=4)(noisy, generator=generator_for(0, "attack"))
    assert isinstance(estimate, InteractionEstimate)
    attacked = auc_per_victim(estimate.scores, labels, view.served_mask)
    assert 0.55 < float(attacked.mean()) < float(genie.mean()) < 0.95
    with pytest.raises(ViewError, match="simulated"):
        genie_auc(noisy, labels, pairs=4, generator=generator_for(0, "genie"))


def test_an_update_of_which_a_part_is_not_clipped_has_no_clip() -> None:
    view, _ = leaky_view(victims=2)
    more = dataclasses.replace(view, deltas={**view.deltas, "mlp": torch.zeros(2, 3)})
    noisy = dataclasses.replace(more, releases=(Release(clip=0.1, noise_scale=1.0, parameters=(ITEM_EMBEDDING,)),))
    assert Channel.of(noisy) == Channel(None, 0.0)


def test_of_several_clips_of_an_update_the_smallest_is_the_last_word() -> None:
    view, _ = leaky_view(victims=2)
    twice = tuple(Release(clip=clip, noise_scale=0.0, parameters=(ITEM_EMBEDDING,)) for clip in (0.3, 0.1, 0.2))
    assert Channel.of(dataclasses.replace(view, releases=twice)) == Channel(0.1, 0.0)
