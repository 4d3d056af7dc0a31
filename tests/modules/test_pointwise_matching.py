"""Gradient matching on votes: it finds them on a toy, keeps its best point, and reads nothing in another's update."""

import dataclasses

import pytest
import torch
from torch import Tensor

from attacks.base import InteractionEstimate, ServerView
from attacks.interactions.affine_inversion import pointwise_update
from attacks.interactions.pointwise_descent import descend
from attacks.metrics import auc_per_victim
from modules.image_ranker import ImageRankerLearner
from modules.pointwise_matching import FGSMMatching, ManipulatedPointwiseMatching, PointwiseMatching
from tests.attacks.test_affine_inversion import toy


def estimated(view: ServerView, max_iter: int) -> InteractionEstimate:
    estimate = PointwiseMatching(max_iter=max_iter)(view, generator=torch.Generator().manual_seed(0))
    assert isinstance(estimate, InteractionEstimate)
    return estimate


def losses(view: ServerView, logits: Tensor) -> Tensor:
    items, sent, change = pointwise_update(view)
    learner = ImageRankerLearner()
    end = descend(
        sent, items, torch.sigmoid(logits), learning_rate=learner.learning_rate, steps=learner.full_batch_steps
    )[-1]
    return end.plus(sent.plus(change), -1.0).squares()


@pytest.mark.parametrize("hidden", [0, 4])
def test_votes_are_found(hidden: int) -> None:
    view, votes = toy(30, 40, hidden)
    assert float(auc_per_victim(estimated(view, 200).scores, votes, view.served_mask).mean()) > 0.97


def test_another_clients_update_says_nothing() -> None:
    view, votes = toy(30, 40, 4, victims=40)
    rolled = {name: value.roll(1, dims=0) for name, value in view.deltas.items()}
    models = {name: value.roll(1, dims=0) for name, value in (view.client_models or {}).items()}
    estimate = estimated(dataclasses.replace(view, deltas=rolled, client_models=models), 60)
    assert abs(float(auc_per_victim(estimate.scores, votes, view.served_mask).mean()) - 0.5) < 0.05


def test_more_steps_are_never_further_away() -> None:
    view, _ = toy(30, 40, 4)
    few, more = (losses(view, estimated(view, steps).scores) for steps in (5, 40))
    assert bool((more <= few).all())


def test_whose_images_they_are_is_in_the_name() -> None:
    assert [kind.name for kind in (PointwiseMatching, FGSMMatching, ManipulatedPointwiseMatching)] == [
        "raifle-none",
        "fgsm",
        "raifle",
    ]
    assert not PointwiseMatching.threat_model.active
    assert ManipulatedPointwiseMatching.threat_model.active


def test_no_step_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        PointwiseMatching(max_iter=0)
