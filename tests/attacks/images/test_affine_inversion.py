"""The inversion of a pointwise update: each step against a slow reference, and the attack on toys."""

import dataclasses
from collections.abc import Callable, Mapping

import pytest
import torch
from scipy.optimize import lsq_linear
from torch import Tensor

from fedleak.attacks.images.affine_inversion import (
    AffineInversion,
    ClickMap,
    bridged,
    click_map,
    conjugate_gradients,
    interior_point,
    ridge,
)
from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.client.pointwise_descent import HIDDEN_BIAS, OUTPUT_BIAS, Items, Ranker, as_parameters, as_ranker, descend
from fedleak.core.errors import ViewError
from fedleak.core.rankers import HIDDEN, LINEAR, OUTPUT
from fedleak.core.scoring import auc_per_victim
from fedleak.core.view import RoundView
from tests.attacks.images.votes import models, toy, voting_round
from tests.attacks.runs import of_others, run

RATE, STEPS = 0.05, 4


def uniform(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(len(shape)), dtype=torch.float64)


def mean_auc(view: RoundView, votes: Tensor) -> float:
    scores = run(AffineInversion(), view, InteractionEstimate).scores
    return float(auc_per_victim(scores, votes, view.served_mask).mean())


def literal_training(model: dict[str, Tensor], features: Tensor, votes: Tensor) -> dict[str, Tensor]:
    """One client, by autograd and torch's loss and optimizer."""
    parameters = {name: value.clone().requires_grad_() for name, value in model.items()}
    optimizer = torch.optim.SGD(parameters.values(), lr=RATE)
    for _ in range(STEPS):
        if LINEAR in parameters:
            scores = features @ parameters[LINEAR]
        else:
            hidden = torch.relu(features @ parameters[HIDDEN].T + parameters[HIDDEN_BIAS])
            scores = hidden @ parameters[OUTPUT] + parameters[OUTPUT_BIAS]
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(scores, votes).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return {name: value.detach() for name, value in parameters.items()}


@pytest.mark.parametrize("hidden", [0, 3])
def test_the_descent_is_torchs(hidden: int) -> None:
    sent = models(5, 7, hidden)
    features = uniform(11, 7) * 3
    votes = uniform(5, 11).round()
    items = Items(features.expand(5, 11, 7), biases=hidden > 0)
    way = descend(as_ranker(sent), items, votes, learning_rate=RATE, steps=STEPS)
    trained = as_parameters(way[-1])
    assert len(way) == STEPS + 1
    for victim in range(5):
        alone = literal_training({name: value[victim] for name, value in sent.items()}, features, votes[victim])
        for name, value in alone.items():
            torch.testing.assert_close(trained[name][victim], value)


@pytest.mark.parametrize("hidden", [0, 3])
def test_shared_items_and_items_of_each_client_are_one(hidden: int) -> None:
    sent = as_ranker(models(4, 6, hidden))
    features = uniform(9, 6)
    votes = uniform(4, 9)
    shared, own = (Items(some, biases=hidden > 0) for some in (features.expand(4, 9, 6), features.repeat(4, 1, 1)))
    assert shared.shared
    assert not own.shared
    ends = [descend(sent, items, votes, learning_rate=1.0, steps=3)[-1] for items in (shared, own)]
    torch.testing.assert_close(ends[0].weight, ends[1].weight)


def mapped(hidden: int) -> tuple[ClickMap, Ranker, Tensor, list[Ranker]]:
    """The map along a client's own way, its update, its votes and the way."""
    features = torch.rand(10, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    votes = torch.rand(3, 10, generator=torch.Generator().manual_seed(3), dtype=torch.float64).round()
    items = Items(features.expand(3, 10, 8), biases=hidden > 0)
    way = descend(as_ranker(models(3, 8, hidden)), items, votes, learning_rate=RATE, steps=STEPS)
    return click_map(way[:-1], items), way[-1].plus(way[0], -1.0), votes, way


def dense(linear: ClickMap) -> Tensor:
    """``(V, P, R)`` the map's matrix, a column for each item."""
    victims, items, _ = linear.slopes.shape
    columns = []
    for item in range(items):
        one = torch.zeros(victims, items, dtype=torch.float64)
        one[:, item] = 1
        image = linear.apply(one)
        parts = [image.weight.flatten(1)] + ([] if image.output is None else [image.output])
        columns.append(torch.cat(parts, dim=1))
    return torch.stack(columns, dim=2)


def flat(ranker: Ranker) -> Tensor:
    return torch.cat([ranker.weight.flatten(1)] + ([] if ranker.output is None else [ranker.output]), dim=1)


@pytest.mark.parametrize("hidden", [0, 3])
def test_along_its_way_an_update_is_affine_in_the_votes(hidden: int) -> None:
    linear, change, votes, way = mapped(hidden)
    rebuilt = linear.apply(votes).plus(linear.offset, -1.0).times(RATE * STEPS / 10)
    torch.testing.assert_close(flat(rebuilt), flat(change))
    for ranker, again in zip(way[:-1], bridged(way, change), strict=True):
        torch.testing.assert_close(again.weight, ranker.weight)


@pytest.mark.parametrize("hidden", [0, 3])
def test_the_transposed_map_is_the_transpose(hidden: int) -> None:
    linear, change, _, _ = mapped(hidden)
    matrix = dense(linear)
    torch.testing.assert_close(linear.transpose(change), (matrix.transpose(1, 2) @ flat(change)[..., None])[..., 0])
    torch.testing.assert_close(linear.squares(), matrix.square().sum(1))


def test_a_bridge_starts_and_ends_where_the_client_did() -> None:
    _, change, _, way = mapped(3)
    items = Items(uniform(1, 10, 8), biases=True)
    other = descend(way[0], items, torch.full((3, 10), 0.5).double(), learning_rate=RATE, steps=STEPS)
    bridge = bridged(other, change)
    assert len(bridge) == STEPS
    torch.testing.assert_close(bridge[0].weight, way[0].weight)
    # One more point of the same rule would be the client's last.
    last = other[-1].plus(way[0].plus(change).plus(other[-1], -1.0))
    torch.testing.assert_close(last.weight, way[-1].weight)


def test_conjugate_gradients_solve() -> None:
    factor = torch.randn(4, 9, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    matrix = factor @ factor.transpose(1, 2) + torch.eye(9, dtype=torch.float64)
    right = torch.randn(4, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = conjugate_gradients(lambda u: (matrix @ u[..., None])[..., 0], right, iterations=20)
    torch.testing.assert_close(found, torch.linalg.solve(matrix, right), rtol=1e-6, atol=1e-8)


def test_ridge_is_the_posterior_mean_of_a_gaussian_prior() -> None:
    linear, _, votes, _ = mapped(3)
    received, noise = linear.apply(votes), torch.tensor([0.1, 0.4, 1.0]).double()
    found = ridge(linear, received, noise, iterations=60)
    for victim, matrix in enumerate(dense(linear)):
        precision = matrix.T @ matrix / noise[victim] ** 2 + 4 * torch.eye(10, dtype=torch.float64)
        gap = flat(received)[victim] - matrix @ torch.full((10,), 0.5).double()
        expected = 0.5 + torch.linalg.solve(precision, matrix.T @ gap / noise[victim] ** 2)
        torch.testing.assert_close(found[victim], expected, rtol=1e-5, atol=1e-6)


def test_the_interior_point_is_as_near_to_bounded_least_squares_as_promised() -> None:
    linear, _, votes, _ = mapped(3)
    draws = torch.randn(flat(linear.offset).shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    noise = Ranker(draws[:, :27].reshape(3, 3, 9), draws[:, 27:])
    received = linear.apply(votes).plus(noise, 0.05)
    found = interior_point(linear, received, barriers=12, iterations=40)
    assert bool(((found > 0) & (found < 1)).all())
    # On the central path the gap is at most the number of bounds times the barrier (Boyd and Vandenberghe, 11.2.2).
    gaps = 2 * 10 * 10**-3.3 * linear.squares().mean(1)
    for victim, matrix in enumerate(dense(linear).numpy()):
        target = flat(received)[victim].numpy()
        best = lsq_linear(matrix, target, bounds=(0, 1))
        ours = ((matrix @ found[victim].numpy() - target) ** 2).sum() / 2
        assert best.cost * (1 - 1e-9) <= ours <= best.cost + float(gaps[victim])


@pytest.mark.parametrize(("hidden", "items"), [(0, 40), (8, 60)])
def test_votes_are_read_where_there_are_numbers_enough(hidden: int, items: int) -> None:
    view, votes = toy(items, 48, hidden)
    assert mean_auc(view, votes) > 0.995


def test_another_clients_update_says_nothing() -> None:
    view, votes = toy(60, 48, 8, victims=40)
    own = {name: value.roll(1, dims=0) for name, value in (view.client_models or {}).items()}
    # Model and update belong together, but to another client than the votes.
    assert abs(mean_auc(dataclasses.replace(of_others(view), client_models=own), votes) - 0.5) < 0.04


def test_under_local_dp_what_is_left_falls_to_chance() -> None:
    some, little = (toy(16, 64, 0, victims=60, epsilon=epsilon) for epsilon in (500, 1))
    assert mean_auc(*some) > 0.75
    assert abs(mean_auc(*little) - 0.5) < 0.05


def silent_scores(models: Mapping[str, Tensor], features: Tensor, votes: Tensor) -> Tensor:
    view = voting_round(models, features, votes, generators=lambda _: torch.Generator())
    return run(AffineInversion(), view, InteractionEstimate).scores


def test_an_item_that_changes_nothing_is_undecided() -> None:
    view, votes = toy(20, 16, 0, victims=2)
    assert view.features is not None
    features = view.features[0].clone()
    features[3] = 0
    found = silent_scores(view.client_models or {}, features, votes)
    assert torch.allclose(found[:, 3], torch.tensor(0.5), atol=1e-3)


def test_a_ranker_whose_units_are_all_off_tells_only_how_many_voted_for() -> None:
    view, votes = toy(20, 16, 2, victims=3)
    models = {name: value.clone() for name, value in (view.client_models or {}).items()}
    models[HIDDEN][1], models[HIDDEN_BIAS][1] = -models[HIDDEN][1].abs(), -1
    assert view.features is not None
    assert float(silent_scores(models, view.features[0], votes)[1].std()) < 1e-4


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda view: {"algorithm": None, "features": view.features}, "learner"),
        (lambda view: {"served": view.served.where(view.served < 5, -1)}, "padding"),
        (lambda _: {"deltas": {"other": torch.zeros(12, 3)}}, "deltas"),
    ],
)
def test_a_view_that_lacks_something_is_refused(change: Callable[[RoundView], dict[str, object]], found: str) -> None:
    view, _ = toy(10, 16, 0)
    with pytest.raises(ViewError, match=found):
        AffineInversion()(dataclasses.replace(view, **change(view)), generator=torch.Generator())  # type: ignore[arg-type]


def test_the_noise_of_two_parameters_differs() -> None:
    """Of 16 numbers and more, two generators of one seed draw the same; the updates themselves are within the clip."""
    view, _ = toy(items=20, features=6, hidden=16, epsilon=1.0)
    hidden, output = view.deltas[HIDDEN].flatten(1)[:, :16], view.deltas[OUTPUT]
    assert float(((hidden - output).abs() > 2 * 0.025).float().mean()) > 0.5
