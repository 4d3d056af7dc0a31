"""A learner whose updates have another length than the recorded ones is named; one that matches is not."""

import dataclasses

import pytest
import torch

from client.algorithm import DescentAlgorithm
from client.engine.local_hyperparameters import LocalTraining
from evaluation.learner_match import LearnerMatch, learner_match
from protocol.seeding import generator_for
from protocol.view import Release, RoundView
from tests.composition_toys import views
from tests.toys import leaky_view


def compared(view: RoundView) -> LearnerMatch:
    found = learner_match(view, generator=generator_for(0, "match"))
    assert isinstance(found, LearnerMatch)
    return found


def with_rate(view: RoundView, factor: float) -> RoundView:
    learner = view.algorithm
    assert isinstance(learner, DescentAlgorithm)
    local = dataclasses.replace(learner.local, learning_rate=factor * learner.local.learning_rate)
    return dataclasses.replace(view, algorithm=dataclasses.replace(learner, local=local))


@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (0.01, False), (0.1, False), (100.0, False)])
def test_a_learning_rate_that_is_far_off_is_found(factor: float, right: bool) -> None:
    (view,), _ = views()
    assert compared(with_rate(view, factor)).right == right


def test_the_ratio_of_a_step_is_that_of_the_learning_rates() -> None:
    (view,), _ = views(LocalTraining(optimizer="sgd", learning_rate=0.1))
    assert compared(with_rate(view, 0.01)).ratio == pytest.approx(0.01 * compared(view).ratio, rel=1e-3)


def test_noise_that_hides_lengths_is_no_mismatch_and_no_match() -> None:
    (view,), _ = views()
    release = Release(parameters=tuple(view.deltas), clip=None, noise_scale=1.0)
    noisy = {name: value + torch.randn(value.shape) for name, value in view.deltas.items()}
    hidden = dataclasses.replace(with_rate(view, 0.01), deltas=noisy, releases=(release,))
    assert "noise" in str(learner_match(hidden, generator=generator_for(0, "match")))


def test_clipped_updates_are_compared_with_clipped_ones() -> None:
    (view,), _ = views()
    norms = torch.stack([value.flatten(1).square().sum(1) for value in view.deltas.values()]).sum(0).sqrt()
    clip = float(norms.min()) / 10
    deltas = {n: v * (clip / norms).reshape(-1, *[1] * (v.dim() - 1)) for n, v in view.deltas.items()}
    release = Release(parameters=tuple(view.deltas), clip=clip, noise_scale=0.0)
    assert compared(dataclasses.replace(view, deltas=deltas, releases=(release,))).ratio == pytest.approx(1, rel=0.01)


def test_without_examples_nothing_is_claimed() -> None:
    (view,), _ = views()
    assert "auxiliary" in str(learner_match(dataclasses.replace(view, auxiliary={}), generator=generator_for(0, "m")))


@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (0.01, False)])
def test_clients_of_a_recommender_need_no_examples_of_the_server(factor: float, right: bool) -> None:
    view, _ = leaky_view()
    assert compared(with_rate(view, factor)).right == right
